package leasing_test

import (
	"context"
	"errors"
	"io"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/driver"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/executor/fake"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/leasing"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/ledger"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/ledger/execs"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/ledger/ledgertest"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/ledger/micro"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

func (w *world) start(req sandbox.ExecRequest) sandbox.Exec {
	w.Helper()
	x, err := w.engine.StartExec(w.Context(), sandbox.LeaseRef{ID: annLease}, req)
	if err != nil {
		w.Fatal(err)
	}
	return x
}

// wantExec checks the state of a command.
func (w *world) wantExec(id string, state sandbox.ExecState) sandbox.Exec {
	w.Helper()
	x, err := w.engine.GetExec(w.Context(), sandbox.ExecRef{LeaseID: annLease, ID: id})
	if err != nil || x.State != state {
		w.Fatalf("command %s is %s (%s), want %s: %v", id, x.State, x.Error, state, err)
	}
	return x
}

// twoProcesses runs a test with two reconcilers, in which one takes over the work of the other.
func twoProcesses(t *testing.T, f func(w *world, other *world)) {
	inWorld(t, func(w *world) {
		w.environment()
		w.acquire(ann)
		store, err := ledger.Open(w.Context(), w.url, ledger.Options{Now: w.now, Poll: time.Second, NoListen: true})
		if err != nil {
			w.Fatal(err)
		}
		other := *w
		other.store, other.stop = store, func() {}
		other.engine = w.newEngine(store)
		defer other.close()
		f(w, &other)
	})
}

func TestACommandWhoseProcessDiesIsFollowedToItsEnd(t *testing.T) {
	twoProcesses(t, func(w, other *world) {
		x := w.start(sandbox.ExecRequest{Command: []string{"sleep", "1m"}, Timeout: sandbox.Duration(time.Hour)})
		later(time.Second)
		w.cutOff()
		other.startLoop()
		later(20 * time.Second)
		if h := other.wantExec(x.ID, sandbox.ExecRunning); !h.FinishedAt.IsZero() {
			w.Errorf("it runs, and finished at %v", h.FinishedAt)
		}
		if l := other.lease(annLease); l.Phase != sandbox.PhaseAwake {
			w.Errorf("its sandbox is %s", l.Phase)
		}
		later(time.Minute)
		if got := other.wantExec(x.ID, sandbox.ExecFinished); got.ExitCode == nil || *got.ExitCode != 0 ||
			got.FinishedAt.Sub(got.StartedAt) > 62*time.Second {
			w.Errorf("it ended as %+v", got)
		}
	})
}

func TestACommandThatEndedUnfollowedIsSettledWithItsOutput(t *testing.T) {
	twoProcesses(t, func(w, other *world) {
		x := w.start(sandbox.ExecRequest{Command: []string{"sleep", "5s", "hello"}})
		later(time.Second)
		w.cutOff()
		later(9 * time.Second)
		other.startLoop()
		later(10 * time.Second)
		got := other.wantExec(x.ID, sandbox.ExecFinished)
		if got.StdoutBytes != 5 || got.Truncated {
			w.Errorf("it ended as %+v", got)
		}
		if took := got.FinishedAt.Sub(got.StartedAt); took != 5*time.Second {
			w.Errorf("it took 5 s, and finished %s after its start", took)
		}
		r, err := other.engine.ReadExec(w.Context(),
			sandbox.OutputRequest{ExecRef: sandbox.ExecRef{LeaseID: annLease, ID: x.ID}, Stream: sandbox.Stdout})
		if err != nil {
			w.Fatal(err)
		}
		if b, err := io.ReadAll(r); string(b) != "hello" || err != nil {
			w.Errorf("it has written %q, %v", b, err)
		}
	})
}

func TestASandboxDoesNotSleepUnderACommandWhoseProcessDied(t *testing.T) {
	twoProcesses(t, func(w, other *world) {
		idle := sandbox.Duration(time.Minute)
		w.environment(func(p *sandbox.PutEnvironment) { p.SleepAfter, p.SleepMode = &idle, sandbox.SleepStop })
		if _, err := w.engine.Release(w.Context(), sandbox.LeaseRef{ID: annLease}); err != nil {
			w.Fatal(err)
		}
		w.acquire(ann)
		x := w.start(sandbox.ExecRequest{Command: []string{"sleep", "10m"}, Timeout: sandbox.Duration(time.Hour)})
		later(5 * time.Minute)
		w.cutOff()
		later(30 * time.Second) // longer than a claim, shorter than the command keeps its lease awake
		other.startLoop()
		later(2 * time.Minute)
		other.wantExec(x.ID, sandbox.ExecRunning)
		later(4 * time.Minute)
		other.wantExec(x.ID, sandbox.ExecFinished)
		later(2 * time.Minute)
		if l := other.lease(annLease); l.Phase != sandbox.PhaseAsleep {
			w.Errorf("after its command its sandbox is %s", l.Phase)
		}
	})
}

func TestACommandThatItsSandboxForgotHasFailed(t *testing.T) {
	twoProcesses(t, func(w, other *world) {
		x := w.start(sandbox.ExecRequest{Command: []string{"sleep", "10m"}, Timeout: sandbox.Duration(time.Hour)})
		later(time.Second)
		w.cutOff()
		w.restartUnseen(other.lease(annLease).SandboxID)
		other.startLoop()
		later(15 * time.Second)
		if got := other.wantExec(x.ID, sandbox.ExecFailed); !strings.Contains(got.Error, "knows no command") {
			w.Errorf("it failed: %s", got.Error)
		}
	})
}

func TestACommandWhoseSandboxStopsHasEndedThen(t *testing.T) {
	twoProcesses(t, func(w, other *world) {
		x := w.start(sandbox.ExecRequest{Command: []string{"sleep", "10m"}, Timeout: sandbox.Duration(time.Hour)})
		later(time.Minute)
		w.cutOff()
		l := other.lease(annLease)
		h := driver.Handle{LedgerID: w.store.ID(), EnvironmentID: game, SandboxID: l.SandboxID, Instance: "engine-1"}
		stopped := time.Now()
		if err := w.backend.Sleep(w.Context(), h, sandbox.SleepStop); err != nil {
			w.Fatal(err)
		}
		w.backend.Change(l.SandboxID, func(o *driver.Observation) { o.StoppedAt = stopped })
		later(30 * time.Second)
		other.startLoop()
		later(30 * time.Second)
		got := other.wantExec(x.ID, sandbox.ExecFailed)
		if !strings.Contains(got.Error, "its sandbox stopped while it ran") ||
			got.FinishedAt.Sub(stopped).Abs() > time.Second {
			w.Errorf("its sandbox stopped at %s; it ended at %s: %s", stopped, got.FinishedAt, got.Error)
		}
		if l := other.lease(annLease); l.Phase != sandbox.PhaseAwake {
			w.Errorf("its sandbox is %s", l.Phase)
		}
	})
}

func TestACommandOfADeadProcessEndsWithItsSandbox(t *testing.T) {
	twoProcesses(t, func(w, other *world) {
		x := w.start(sandbox.ExecRequest{Command: []string{"sleep", "10m"}, Timeout: sandbox.Duration(time.Hour)})
		later(time.Second)
		w.cutOff()
		if _, err := other.engine.Release(w.Context(), sandbox.LeaseRef{ID: annLease}); err != nil {
			w.Fatal(err)
		}
		other.startLoop()
		later(15 * time.Second)
		if got := other.wantExec(x.ID, sandbox.ExecCancelled); !strings.Contains(got.Error, "release") {
			w.Errorf("it was cancelled: %s", got.Error)
		}
	})
}

func TestACommandIsFollowedAgainWhenTheConnectionBreaks(t *testing.T) {
	inWorld(t, func(w *world) {
		w.environment()
		w.acquire(ann)
		broken := make(chan struct{})
		w.backend.Fault(fake.OpFollow, func(context.Context) error {
			select {
			case <-broken:
				return nil
			default:
				return sandbox.Errorf(sandbox.UnknownOutcome, "the stream broke")
			}
		})
		w.backend.Fault(fake.OpExec, func(context.Context) error {
			w.backend.Fault(fake.OpExec, nil)
			return sandbox.Errorf(sandbox.UnknownOutcome, "the stream broke")
		})
		x := w.start(sandbox.ExecRequest{ID: "late", Command: []string{"sleep", "1m"}})
		later(3 * time.Second)
		w.wantExec(x.ID, sandbox.ExecRunning)
		close(broken)
		later(time.Minute) // no process ever started it
		w.wantExec(x.ID, sandbox.ExecFailed)
	})
}

func TestOutputThatCannotBeStoredIsSaidToBeMissing(t *testing.T) {
	inWorld(t, func(w *world) {
		w.environment()
		w.acquire(ann)
		w.bucket.fail(bucketDown)
		text := strings.Repeat("x", 100_000)
		r, err := w.engine.Exec(w.Context(), sandbox.LeaseRef{ID: annLease},
			sandbox.ExecRequest{Command: []string{"cat"}, Stdin: strings.NewReader(text)})
		if err != nil || string(r.Stdout) != text || r.ExitCode != 0 {
			w.Fatalf("%d bytes, exit code %d, %v", len(r.Stdout), r.ExitCode, err)
		}
		if x := w.wantExec(r.ExecID, sandbox.ExecFinished); !x.Truncated || x.StdoutBytes != 100_000 ||
			!strings.Contains(x.Error, "the bucket is down") {
			w.Errorf("the record is %+v", x)
		}
	})
}

func TestOutputOfPurgedCommandsIsDeleted(t *testing.T) {
	inWorld(t, func(w *world) {
		w.environment()
		w.acquire(ann)
		for range 2 {
			_, err := w.engine.Exec(w.Context(), sandbox.LeaseRef{ID: annLease},
				sandbox.ExecRequest{Command: []string{"cat"}, Stdin: strings.NewReader(strings.Repeat("x", 100_000))})
			if err != nil {
				w.Fatal(err)
			}
		}
		if n := len(w.bucket.names()); n != 2 {
			w.Errorf("%d objects are kept", n)
		}
		if _, err := w.engine.Release(w.Context(), sandbox.LeaseRef{ID: annLease}); err != nil {
			w.Fatal(err)
		}
		w.cleanup = time.Hour
		w.startLoop()
		later(2 * time.Hour)
		if left := w.bucket.names(); len(left) != 0 {
			w.Errorf("left in the bucket: %v", left)
		}
	})
}

// restartUnseen stops and starts a sandbox on its backend, without the engine.
func (w *world) restartUnseen(id string) {
	w.Helper()
	h := w.handle(id)
	if err := w.backend.Sleep(w.Context(), h, sandbox.SleepStop); err != nil {
		w.Fatal(err)
	}
	if _, err := w.backend.Wake(w.Context(), h); err != nil {
		w.Fatal(err)
	}
}

// cutOff disconnects the world's process from its ledger and its engine, as SIGKILL would.
func (w *world) cutOff() {
	w.Helper()
	if err := w.store.Close(); err != nil {
		w.Error(err)
	}
	if err := w.engine.Close(); err != nil {
		w.Error(err)
	}
	synctest.Wait()
}

// A command has an exit code once its program has ended with one, and not before: 0 would mean success.
func TestACommandWithoutAResultHasNoExitCode(t *testing.T) {
	inWorld(t, func(w *world) {
		w.startLoop()
		w.environment()
		w.acquire(ann)
		x := w.start(sandbox.ExecRequest{Command: []string{"sleep", "1m"}})
		if x.ExitCode != nil {
			t.Errorf("it runs, with the exit code %d", *x.ExitCode)
		}
		if _, err := w.engine.CancelExec(w.Context(), sandbox.ExecRef{LeaseID: annLease, ID: x.ID}); err != nil {
			t.Fatal(err)
		}
		if got := w.wantExec(x.ID, sandbox.ExecCancelled); got.ExitCode != nil {
			t.Errorf("it was cancelled, with the exit code %d", *got.ExitCode)
		}
		p := w.startProcess(sandbox.ProcessSpec{Name: "relay", Command: []string{"sleep", "1h"}})
		if p.ExitCode != nil {
			t.Errorf("the process runs, with the exit code %d", *p.ExitCode)
		}
		ref := sandbox.ProcessRef{LeaseRef: sandbox.LeaseRef{ID: annLease}, Name: "relay"}
		if _, err := w.engine.KillProcess(w.Context(), ref); err != nil {
			t.Fatal(err)
		}
		if got := w.wantProcess("relay", sandbox.ProcessKilled, 1); got.ExitCode != nil {
			t.Errorf("the process was killed, with the exit code %d", *got.ExitCode)
		}
	})
}

// TestABackendThatHangsHoldsNoCommandForEver: it is unknown whether the command was started, and its sandbox may sleep.
func TestABackendThatHangsHoldsNoCommandForEver(t *testing.T) {
	inWorld(t, func(w *world) {
		w.startLoop()
		w.environment()
		w.acquire(ann)
		w.backend.Fault(fake.OpExec, func(ctx context.Context) error {
			<-ctx.Done()
			return sandbox.Errorf(sandbox.UnknownOutcome, "no answer within the deadline")
		})
		x := w.start(sandbox.ExecRequest{Command: []string{"sleep", "1s"}, Timeout: sandbox.Duration(time.Minute)})
		later(5 * time.Minute)
		w.wantExec(x.ID, sandbox.ExecRunning)
		later(10 * time.Minute)
		w.wantExec(x.ID, sandbox.ExecFailed)
		if l := w.lease(annLease); l.Phase != sandbox.PhaseAsleep {
			w.Errorf("its sandbox is %s", l.Phase)
		}
	})
}

// overChannel is a backend whose commands reach process 1 over a channel.
type overChannel struct{ *fake.Executor }

// Capabilities implements driver.Executor.
func (x overChannel) Capabilities() driver.Capabilities {
	c := x.Executor.Capabilities()
	c.Channel = true
	return c
}

// TestACallerThatLeavesBeforeItsCommandBeginsGetsAnError makes a sandbox unreachable.
func TestACallerThatLeavesBeforeItsCommandBeginsGetsAnError(t *testing.T) {
	inWorld(t, func(w *world) {
		w.environment()
		w.acquire(ann)
		w.backend.Fail(fake.OpFollow, away)
		e, err := leasing.New(leasing.Config{Store: w.store, Executors: []driver.Executor{overChannel{w.backend}}})
		if err != nil {
			w.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(w.Context(), time.Second)
		defer cancel()
		req := sandbox.ExecRequest{ID: "named-by-its-caller", Command: []string{"sleep", "10s"}}
		_, err = e.StartExec(ctx, sandbox.LeaseRef{ID: annLease}, req)
		if sandbox.CodeOf(err) != sandbox.Timeout || !errors.Is(err, context.DeadlineExceeded) ||
			!strings.Contains(err.Error(), req.ID) {
			t.Errorf("%s: %v", sandbox.CodeOf(err), err)
		}
		later(time.Minute)
		w.wantExec(req.ID, sandbox.ExecFinished)
		if err := e.Close(); err != nil {
			t.Error(err)
		}
	})
}

func TestACancelWhoseCallerLeavesEndsTheCommand(t *testing.T) {
	inWorld(t, func(w *world) {
		w.startLoop()
		never := sandbox.Duration(0)
		w.environment(func(p *sandbox.PutEnvironment) { p.SleepAfter = &never })
		w.acquire(ann)
		x, err := w.engine.StartExec(w.Context(), sandbox.LeaseRef{ID: annLease}, sandbox.ExecRequest{
			Command: []string{"sleep", "1h"}, Timeout: sandbox.Duration(time.Hour), Detach: true,
		})
		if err != nil {
			t.Fatal(err)
		}
		w.backend.Fault(fake.OpEndExec, func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() })
		ctx, cancel := context.WithTimeout(w.Context(), time.Second)
		defer cancel()
		ref := sandbox.ExecRef{LeaseID: annLease, ID: x.ID}
		_, err = w.engine.CancelExec(ctx, ref)
		later(time.Second)
		w.backend.Fault(fake.OpEndExec, nil)
		later(5 * time.Minute)
		if x, _ = w.engine.GetExec(w.Context(), ref); err == nil || x.State != sandbox.ExecCancelled {
			t.Errorf("the caller left with %v, and 5 minutes later the command is %s", err, x.State)
		}
	})
}

// TestACommandThatCannotBeTakenOverHidesNoOther makes the ledger refuse to store a change of the older one.
func TestACommandThatCannotBeTakenOverHidesNoOther(t *testing.T) {
	twoProcesses(t, func(w, other *world) {
		for _, id := range []string{"first", "second"} {
			w.start(sandbox.ExecRequest{ID: id, Command: []string{"sleep", "10m"}})
			later(time.Second)
		}
		w.cutOff()
		later(10 * time.Second)
		other.resyncNow() // connects to the backend
		ledgertest.ExecSQL(w.T, w.path, "CREATE TRIGGER refuse BEFORE UPDATE ON execs "+
			"WHEN NEW.id = 'first' BEGIN SELECT RAISE(ABORT, 'no'); END")
		if _, err := other.engine.TakeOverExecs(w.Context()); err == nil {
			t.Error("the refusal is hidden")
		}
		var x *execs.Exec
		err := other.store.Read(w.Context(), func(tx *ledger.Tx) (err error) {
			x, err = execs.In(tx).Exec("second")
			return err
		})
		if err != nil || x == nil || x.HeldUntil <= micro.At(time.Now()) {
			t.Errorf("the second command is %+v: %v", x, err)
		}
	})
}
