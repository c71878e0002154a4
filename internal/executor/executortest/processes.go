package executortest

import (
	"bytes"
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/driver"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// testProcesses works for every backend: its processes are echo and sleep, run by a shell if the backend has one.
func testProcesses(t *testing.T, cfg Config) {
	w := newWorld(t, cfg)
	shared := w.spawn(t)
	for name, test := range map[string]func(*testing.T, *world, driver.Handle){
		"a process that has ended has its log and its result": processEnds,
		"a process runs under its id once":                    processOnce,
		"a process goes on when its starter does not":         processOutlives,
		"a process that is ended says that it was":            processEndedFromOutside,
		"a process that nobody started":                       processUnknown,
		"a port that no program serves":                       portClosed,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test(t, w, shared)
		})
	}
	t.Run("a paused process goes on where it stood", func(t *testing.T) {
		t.Parallel()
		processPaused(t, w)
	})
	t.Run("a process ends with its sandbox", func(t *testing.T) {
		t.Parallel()
		processStopped(t, w)
	})
	for name, test := range map[string]func(*testing.T, *world){
		"a log is both streams, read while it grows": logGrows,
		"a log keeps the latest":                     logKeepsLatest,
		"a process ends with all that it started":    processTree,
		"a port is waited for":                       portOpens,
	} {
		t.Run(name, func(t *testing.T) {
			cfg.skip(t, "Processes/"+name)
			t.Parallel()
			w.needExec(t)
			test(t, w)
		})
	}
}

// process returns a start of a process with its own id.
func process(command ...string) driver.ProcessRun {
	return driver.ProcessRun{ID: sandbox.RandomIDs(sandbox.SandboxIDLength), Command: command, Cwd: "/workspace"}
}

// keepRunning starts a process and stops waiting once it runs.
func (w *world) keepRunning(t *testing.T, h driver.Handle, p driver.ProcessRun) string {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	ended := make(chan error, 1)
	go func() {
		_, err := w.x.RunProcess(ctx, h, p)
		ended <- err
	}()
	eventually(t, "the process is known", func() bool {
		_, err := w.x.Follow(t.Context(), h, sandbox.Replay{ID: p.ID, Now: true, Stdout: &bytes.Buffer{}})
		return err == nil
	})
	cancel()
	if err := <-ended; err == nil {
		t.Fatal("the process ended before its starter left")
	}
	return p.ID
}

// log reads the existing part of a log and its start offset.
func (w *world) log(t *testing.T, h driver.Handle, id string, from int64) (string, int64) {
	t.Helper()
	var out bytes.Buffer
	begins := int64(-1)
	_, err := w.x.Follow(t.Context(), h, sandbox.Replay{ID: id, Now: true, Stdout: &out, StdoutOffset: from,
		Begins: func(at int64) error { begins = at; return nil }})
	must(t, err)
	return out.String(), begins
}

// result waits for a process's end.
func (w *world) result(t *testing.T, h driver.Handle, id string) (sandbox.ExecResult, error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	return w.x.Follow(ctx, h, sandbox.Replay{ID: id})
}

func processEnds(t *testing.T, w *world, h driver.Handle) {
	p := process("echo", "hello")
	res, err := w.x.RunProcess(t.Context(), h, p)
	must(t, err)
	if res.ExitCode != 0 || res.StdoutBytes != 6 || len(res.Stdout) != 0 || res.Truncated || res.TimedOut {
		t.Errorf("it ended with %+v", res)
	}
	for from, want := range map[int64]string{0: "hello\n", 2: "llo\n", 6: "", 99: ""} {
		if got, at := w.log(t, h, p.ID, from); got != want || at != min(from, 6) {
			t.Errorf("from %d: %q from %d", from, got, at)
		}
	}
	if again, err := w.result(t, h, p.ID); err != nil || again.ExitCode != 0 || again.Duration != res.Duration ||
		again.StdoutBytes != 6 {
		t.Errorf("it ended with %+v and %v, and at first with %+v", again, err, res)
	}
}

func processOnce(t *testing.T, w *world, h driver.Handle) {
	p := process("sleep", "1h")
	w.keepRunning(t, h, p)
	_, err := w.x.RunProcess(t.Context(), h, p)
	wantError(t, err, sandbox.Conflict, sandbox.ReasonOtherSettings)
	must(t, w.x.EndExec(t.Context(), h, p.ID, ""))
	_, err = w.x.RunProcess(t.Context(), h, p)
	wantError(t, err, sandbox.Conflict, sandbox.ReasonOtherSettings)
}

func processOutlives(t *testing.T, w *world, h driver.Handle) {
	id := w.keepRunning(t, h, process("sleep", "3s"))
	if res, err := w.result(t, h, id); err != nil || res.ExitCode != 0 || res.Duration.D() < 2900*time.Millisecond {
		t.Errorf("it ended with %+v and %v", res, err)
	}
}

func processEndedFromOutside(t *testing.T, w *world, h driver.Handle) {
	id := w.keepRunning(t, h, process("sleep", "1h"))
	for range 2 {
		must(t, w.x.EndExec(t.Context(), h, id, ""))
	}
	_, err := w.result(t, h, id)
	wantError(t, err, sandbox.Failed, sandbox.ReasonExecFailed)
}

func processUnknown(t *testing.T, w *world, h driver.Handle) {
	_, err := w.result(t, h, "nobody-ran-it")
	wantError(t, err, sandbox.NotFound, sandbox.ReasonExecNotFound)
	absent := w.spec().Handle
	_, err = w.x.RunProcess(t.Context(), absent, process("echo"))
	wantError(t, err, sandbox.NotFound, sandbox.ReasonSandboxNotFound)
	wantError(t, w.x.AwaitPort(t.Context(), absent, 80), sandbox.NotFound, sandbox.ReasonSandboxNotFound)
}

func portClosed(t *testing.T, w *world, h driver.Handle) {
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	wantError(t, w.x.AwaitPort(ctx, h, 81), sandbox.Timeout, "")
}

func processPaused(t *testing.T, w *world) {
	if !w.x.Capabilities().Pause {
		t.Skip("the backend cannot pause")
	}
	h := w.spawn(t)
	id := w.keepRunning(t, h, process("sleep", "4s"))
	must(t, w.x.Sleep(t.Context(), h, sandbox.SleepPause))
	_, err := w.x.RunProcess(t.Context(), h, process("echo"))
	wantError(t, err, sandbox.Conflict, sandbox.ReasonInvalidState)
	wake(t, w.x, h)
	if res, err := w.result(t, h, id); err != nil || res.ExitCode != 0 {
		t.Errorf("it ended with %+v and %v", res, err)
	}
}

func processStopped(t *testing.T, w *world) {
	h := w.spawn(t)
	p := process("sleep", "1h")
	ended := make(chan error, 1)
	go func() {
		_, err := w.x.RunProcess(t.Context(), h, p)
		ended <- err
	}()
	eventually(t, "the process is known", func() bool {
		_, err := w.x.Follow(t.Context(), h, sandbox.Replay{ID: p.ID, Now: true})
		return err == nil
	})
	must(t, w.x.Sleep(t.Context(), h, sandbox.SleepStop))
	select {
	case err := <-ended:
		// Either the process reports that it was asked to end, or the sandbox ended first.
		if err != nil {
			wantError(t, err, sandbox.UnknownOutcome, "")
		}
	case <-time.After(patience):
		t.Fatal("its starter waits for a process that has ended")
	}
	wake(t, w.x, h)
	_, err := w.result(t, h, p.ID)
	wantError(t, err, sandbox.NotFound, sandbox.ReasonExecNotFound)
	w.keepRunning(t, h, p)
}

func logGrows(t *testing.T, w *world) {
	h := w.spawn(t)
	p := process("sh", "-c", "echo out; echo problem >&2; sleep 1; echo $WORD; exit 3")
	p.Env = map[string]string{"WORD": "last"}
	id := w.keepRunning(t, h, p)
	eventually(t, "the process has written", func() bool {
		said, _ := w.log(t, h, id, 0)
		return strings.HasPrefix(said, "out\n")
	})
	var log bytes.Buffer
	var begins []int64
	res, err := w.x.Follow(t.Context(), h, sandbox.Replay{ID: id, Stdout: &log, StdoutOffset: 2,
		Begins: func(at int64) error { begins = append(begins, at); return nil }})
	must(t, err)
	if log.String() != "t\nproblem\nlast\n" || len(begins) != 1 || begins[0] != 2 || res.ExitCode != 3 ||
		res.StdoutBytes != 17 || res.StderrBytes != 0 {
		t.Errorf("%q from %v, %+v", log.String(), begins, res)
	}
	none := process("no-such-program")
	if res, err := w.x.RunProcess(t.Context(), h, none); err != nil || res.ExitCode != 127 {
		t.Errorf("a program that is not there: %+v, %v", res, err)
	}
	if said, _ := w.log(t, h, none.ID, 0); !strings.Contains(said, "no-such-program") {
		t.Errorf("the log of a program that is not there is %q", said)
	}
	stop := errors.New("enough")
	_, err = w.x.Follow(t.Context(), h, sandbox.Replay{ID: id, Stdout: &log, Begins: func(int64) error { return stop }})
	if err == nil {
		t.Error("a reader that refuses where the log begins is given it")
	}
}

func logKeepsLatest(t *testing.T, w *world) {
	h := w.spawn(t)
	const written = 20_000_000
	id := w.keepRunning(t, h, process("sh", "-c", "sleep 1; yes 1234567 | head -c 19999992; echo 7654321 >&2; sleep 1h"))
	eventually(t, "all is written", func() bool {
		rest, at := w.log(t, h, id, written-16)
		return rest == "1234567\n7654321\n" && at == written-16
	})
	log, at := w.log(t, h, id, 0)
	if at+int64(len(log)) != written || len(log) > sandbox.MaxProcessLog || len(log) < sandbox.MaxProcessLog/2 ||
		!strings.HasPrefix(log[8-at%8:], "1234567\n") {
		t.Errorf("the log is %d bytes from %d", len(log), at)
	}
	must(t, w.x.EndExec(t.Context(), h, id, ""))
}

func processTree(t *testing.T, w *world) {
	h := w.spawn(t)
	tree := "setsid sleep 3601 & (sleep 3602 & sleep 3603) & "
	killed := w.keepRunning(t, h, process("sh", "-c", tree+"sleep 3604"))
	eventually(t, "all of it runs", func() bool { return w.alive(t, h, "sleep 360") == 4 })
	must(t, w.x.EndExec(t.Context(), h, killed, ""))
	if n := w.alive(t, h, "sleep 360"); n != 0 {
		t.Errorf("%d processes of one that was ended are left", n)
	}
	res, err := w.x.RunProcess(t.Context(), h, process("sh", "-c", tree+"exit 7"))
	must(t, err)
	if n := w.alive(t, h, "sleep 360"); n != 0 || res.ExitCode != 7 {
		t.Errorf("%d processes of one that ended by itself, with %d, are left", n, res.ExitCode)
	}
}

func portOpens(t *testing.T, w *world) {
	h := w.spawn(t)
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	var waiting sync.WaitGroup
	waiting.Go(func() {
		if err := w.x.AwaitPort(ctx, h, 8080); err != nil {
			t.Errorf("wait for a port that opens later: %v", err)
		}
	})
	w.keepRunning(t, h, process("sh", "-c", "sleep 1; nc -l -p 8080; sleep 1h"))
	waiting.Wait()
}
