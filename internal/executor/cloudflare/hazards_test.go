package cloudflare_test

import (
	"bytes"
	"context"
	_ "embed" // a part of a Worker
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/driver"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/executor/cloudflare"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/executor/cloudflare/cloudflaretest"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/executor/docker/dockertest"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// testHazards causes the failures of Durable Objects and containers at Cloudflare that are possible here.
func testHazards(w *world) {
	w.each(map[string]func(*world){
		"a container that dies is distinguished, and starts again": crash,
		"one that dies under a command":                            crashUnderCommand,
		"a caller that dies lets the sandbox fall asleep":          callerDies,
		"a detached command whose caller dies keeps it awake":      detachedCallerDies,
		"no stop waits for the reader of a copy":                   unreadCopyStopped,
		"no kill waits for the reader of a copy":                   unreadCopyKilled,
		"ids in capitals lead nowhere":                             otherCase,
		"a Worker that closes accepts no first environment":        closedUnused,
	})
}

// closedUnused: another process may add the first environment of a ledger while this one deletes its Worker.
func closedUnused(w *world) {
	ref := driver.EnvironmentRef{
		LedgerID: sandbox.RandomIDs(sandbox.LedgerIDLength), EnvironmentID: "first", Instance: w.server.Instance,
	}
	if closed, err := w.worker.CloseLedger(w.Context(), ref.Instance, ref.LedgerID); err != nil || !closed {
		w.Fatalf("an unused Worker is closed: %t, %v", closed, err)
	}
	if closed, err := w.worker.PutEnvironment(w.Context(), ref, "image", "prepared"); err != nil || !closed {
		w.Errorf("afterwards it is closed: %t, %v", closed, err)
	}
}

// crash ends a sandbox's container behind the Worker's back.
func (w *world) crash(h driver.Handle) {
	w.Helper()
	cloudflaretest.Crash(w, strings.TrimSpace(w.sh(h, "hostname")))
}

func crash(w *world) {
	h := w.spawn(cloudflare.Limits{})
	w.sh(h, "echo lost > /workspace/lost")
	w.crash(h)
	if p := w.awaitStopped(h); p.Cause != cloudflare.CauseCrash || p.ExitCode != 137 {
		w.Errorf("it stopped as %+v", p)
	}
	_, err := w.exec(h, sandbox.ExecRequest{Command: []string{"true"}})
	w.wantError(err, sandbox.Conflict, sandbox.ReasonInvalidState)
	w.must(w.worker.Wake(w.Context(), h))
	if got := w.sh(h, "ls /workspace"); got != "config.json\n" {
		w.Errorf("after a crash /workspace holds %q", got)
	}
	w.wantPeriods(h, cloudflare.CauseCrash, "")
}

func crashUnderCommand(w *world) {
	h := w.spawn(cloudflare.Limits{})
	host := strings.TrimSpace(w.sh(h, "hostname"))
	begun := writerFunc(func(p []byte) (int, error) { cloudflaretest.Crash(w, host); return len(p), nil })
	_, err := w.exec(h, sandbox.ExecRequest{Command: []string{"sh", "-c", "echo begun; sleep 7004"}, Stdout: begun})
	w.wantError(err, sandbox.UnknownOutcome, sandbox.ReasonExecFailed)
	if p := w.awaitStopped(h); p.Cause != cloudflare.CauseCrash {
		w.Errorf("it stopped as %+v", p)
	}
}

// fillTime is how long a copy without a reader has to fill all buffers between the sandbox and its reader.
const fillTime = 2 * time.Second

// unreadCopy begins a copy that is larger than all buffers between the sandbox and its reader, runs act, and checks
// that the copy breaks off.
func (w *world) unreadCopy(h driver.Handle, act func() error) {
	w.Helper()
	w.sh(h, "head -c 50000000 /dev/zero > /workspace/large")
	r, err := w.worker.CopyFrom(w.Context(), h, "/workspace/large")
	w.must(err)
	_, err = io.ReadFull(r, make([]byte, 1000))
	w.must(err)
	time.Sleep(fillTime) //nolint:forbidigo // no event says that the buffers are full
	err = act()
	_, broken := io.Copy(io.Discard, r)
	w.must(errors.Join(err, r.Close()))
	if broken == nil {
		w.Error("the copy of an ended sandbox has no error")
	}
}

func unreadCopyStopped(w *world) {
	h := w.spawn(cloudflare.Limits{})
	w.sh(h, "echo kept > /data/kept")
	w.unreadCopy(h, func() error { return w.worker.Sleep(w.Context(), h) })
	w.must(w.worker.Wake(w.Context(), h))
	if got := w.sh(h, "cat /data/kept"); got != "kept\n" {
		w.Errorf("after a stop /data/kept holds %q", got)
	}
	w.wantPeriods(h, cloudflare.CauseSleep, "")
}

func unreadCopyKilled(w *world) {
	h := w.spawn(cloudflare.Limits{})
	w.unreadCopy(h, func() error { return w.worker.Kill(w.Context(), h) })
	w.wantPeriods(h, cloudflare.CauseKill)
}

// mortal is a connection to the Worker that can be cut for good, as by the death of this process.
type mortal struct {
	mu    sync.Mutex
	dead  bool
	conns []net.Conn
}

func (m *mortal) dial(ctx context.Context, network, addr string) (net.Conn, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.dead {
		return nil, errors.New("this process has died")
	}
	c, err := (&net.Dialer{}).DialContext(ctx, network, addr)
	if err == nil {
		m.conns = append(m.conns, c)
	}
	return c, err
}

func (m *mortal) die() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.dead = true
	for _, c := range m.conns {
		_ = c.Close() // it may be closed already
	}
}

// dieUnder starts a command and dies while it runs.
func (w *world) dieUnder(h driver.Handle, id string, detach bool) {
	w.Helper()
	w.dieAtOutput(h, sandbox.ExecRequest{
		ID:      id,
		Command: []string{"sh", "-c", "echo begun; exec sleep 7005"},
		Timeout: sandbox.Duration(time.Hour),
		Detach:  detach,
	})
}

// dieAtOutput starts a command and dies when it writes.
func (w *world) dieAtOutput(h driver.Handle, r sandbox.ExecRequest) {
	w.Helper()
	line := &mortal{}
	x, err := cloudflare.NewWorker(cloudflare.WorkerConfig{
		URL:  w.server.URL,
		Key:  w.server.Key,
		HTTP: &http.Client{Transport: &http.Transport{DialContext: line.dial}},
	})
	w.must(err)
	var closing sync.WaitGroup
	defer closing.Wait()
	r.Stdout = writerFunc(func(p []byte) (int, error) {
		line.die()
		closing.Go(func() { _ = x.Close() }) // no caller needs its error
		return len(p), nil
	})
	r, err = r.Normalize()
	w.must(err)
	_, err = x.Exec(w.Context(), h, r)
	w.wantError(err, sandbox.UnknownOutcome, sandbox.ReasonExecFailed)
}

func callerDies(w *world) {
	h := w.spawn(cloudflare.Limits{SleepAfter: 8 * time.Second})
	w.dieUnder(h, "", false)
	if p := w.awaitStopped(h); p.Cause != cloudflare.CauseIdle {
		w.Errorf("it stopped as %+v", p)
	}
}

func detachedCallerDies(w *world) {
	const sleepAfter = 8 * time.Second
	h := w.spawn(cloudflare.Limits{SleepAfter: sleepAfter})
	id := sandbox.RandomIDs(sandbox.SandboxIDLength)
	w.dieUnder(h, id, true)
	time.Sleep(2 * sleepAfter) //nolint:forbidigo // without use for that long, it would sleep
	if s := w.inspect(h); s.State != sandbox.StateRunning {
		w.Errorf("with a running command its status is %+v", s)
	}
	if n := w.alive(h, "sleep 7005"); n != 1 {
		w.Errorf("%d processes of the command run, want 1", n)
	}
	var out bytes.Buffer
	followed := make(chan error, 1)
	go func() {
		res, err := w.worker.Follow(w.Context(), h, sandbox.Replay{ID: id, Stdout: &out})
		if err == nil && (res.ExitCode != 143 || out.String() != "begun\n") {
			err = fmt.Errorf("it wrote %q and ended with %+v", out.String(), res)
		}
		followed <- err
	}()
	if _, err := w.worker.Follow(w.Context(), h,
		sandbox.Replay{ID: "nobody-ran-it"}); sandbox.ReasonOf(err) != sandbox.ReasonExecNotFound {
		w.Errorf("a command that was never run: %v", err)
	}
	w.sh(h, "kill $(pidof sleep)")
	if err := <-followed; err != nil {
		w.Errorf("another caller follows the command: %v", err)
	}
	if p := w.awaitStopped(h); p.Cause != cloudflare.CauseIdle {
		w.Errorf("it stopped as %+v", p)
	}
}

func otherCase(w *world) {
	spec := w.spec()
	w.must(w.worker.Spawn(w.Context(), spec, cloudflare.Limits{}))
	spec.SandboxID = strings.ToUpper(spec.SandboxID)
	for _, err := range []error{
		w.worker.Spawn(w.Context(), spec, cloudflare.Limits{}), w.worker.Kill(w.Context(), spec.Handle),
	} {
		w.wantError(err, sandbox.Invalid, "")
	}
}

// TestReset: a deployment evicts Durable Objects from memory during calls.
func TestReset(t *testing.T) {
	server := cloudflaretest.Start(t, cloudflaretest.Config{})
	w := &world{t, server, server.Worker()}
	h := w.spawn(cloudflare.Limits{SleepAfter: 5 * time.Second})
	w.sh(h, "echo kept > /workspace/kept")
	begun := make(chan struct{})
	type outcome struct {
		res sandbox.ExecResult
		err error
	}
	ended := make(chan outcome, 1)
	go func() {
		var once sync.Once
		var out bytes.Buffer
		tee := writerFunc(func(p []byte) (int, error) { once.Do(func() { close(begun) }); return out.Write(p) })
		res, err := w.exec(h, sandbox.ExecRequest{
			Command: []string{"sh", "-c", "echo begun; while ! [ -e /workspace/go ]; do sleep 0.1; done; echo done"},
			Stdout:  tee,
		})
		res.Stdout = out.Bytes()
		ended <- outcome{res, err}
	}()
	<-begun
	before := server.URL
	server.Reset()
	if server.URL != before {
		t.Fatalf("the Worker moved from %s to %s", before, server.URL)
	}
	w.sh(h, "touch /workspace/go")
	if o := <-ended; o.err != nil || o.res.ExitCode != 0 || string(o.res.Stdout) != "begun\ndone\n" {
		t.Errorf("the command that ran meanwhile wrote %q and ended with %+v, %v", o.res.Stdout, o.res, o.err)
	}
	w.worker = server.Worker()
	if s := w.inspect(h); s.State != sandbox.StateRunning || s.Period.Boot != 1 {
		t.Errorf("after the reset its status is %+v", s)
	}
	if got := w.sh(h, "cat /workspace/kept"); got != "kept\n" {
		t.Errorf("after the reset it keeps %q", got)
	}
	if p := w.awaitStopped(h); p.Cause != cloudflare.CauseIdle {
		t.Errorf("it stopped as %+v", p)
	}
	w.wantPeriods(h, cloudflare.CauseIdle)
}

// TestResetUnderStart: retrying a start whose answer was lost leaves one sandbox.
func TestResetUnderStart(t *testing.T) {
	server := cloudflaretest.Start(t, cloudflaretest.Config{})
	w := &world{t, server, server.Worker()}
	spec := w.spec()
	started := make(chan error, 1)
	go func() { started <- w.worker.Spawn(t.Context(), spec, cloudflare.Limits{}) }()
	time.Sleep(100 * time.Millisecond) //nolint:forbidigo // the Worker is starting the container, or has not begun
	server.Reset()
	if err := <-started; err != nil {
		w.wantError(err, sandbox.UnknownOutcome, "")
	}
	w.worker = server.Worker()
	w.must(w.worker.Spawn(t.Context(), spec, cloudflare.Limits{}))
	if got := w.sh(spec.Handle, "echo fine"); got != "fine\n" {
		t.Errorf("it says %q", got)
	}
	periods, err := w.worker.Periods(t.Context(), spec.Handle)
	w.must(err)
	if i := slices.IndexFunc(periods,
		func(p cloudflare.Period) bool { return p.StoppedAt.IsZero() }); i != len(periods)-1 {
		t.Errorf("its periods are %+v, want only the last one without an end", periods)
	}
}

// TestStartFails: an image that does not start leaves a sandbox to kill, and its record.
func TestStartFails(t *testing.T) {
	for name, image := range map[string]string{
		"without guest": dockertest.Busybox(t),
		"not there":     "sandbox-test/no-such-image:1",
	} {
		t.Run(name, func(t *testing.T) {
			server := cloudflaretest.Start(t, cloudflaretest.Config{Image: image})
			w := &world{t, server, server.Worker()}
			spec := w.spec()
			for range 2 { // the second spawn finds the first one's sandbox
				w.wantError(w.worker.Spawn(t.Context(), spec, cloudflare.Limits{}), sandbox.Failed, sandbox.ReasonStartFailed)
			}
			w.must(w.worker.Kill(t.Context(), spec.Handle))
			_, err := w.worker.Inspect(t.Context(), spec.Handle)
			w.wantError(err, sandbox.NotFound, sandbox.ReasonSandboxNotFound)
			w.wantPeriods(spec.Handle, cloudflare.CauseStartFailed)
		})
	}
}

//go:embed testdata/noroom.js
var noRoom string

// TestNoRoom: a start that Cloudflare refuses for lack of capacity can be retried, and leaves nothing behind. The
// platform's messages are those in worker/src/errors.ts; the local runtime never returns them.
func TestNoRoom(t *testing.T) {
	server := cloudflaretest.Start(t, cloudflaretest.Config{Append: noRoom})
	for name, refusal := range map[string]string{
		"of the application": "Maximum number of running container instances exceeded. Try again later, or try configuring " +
			"a higher value for max_instances",
		"of the account":  "SURPASSED_TOTAL_LIMITS",
		"of a location":   "LOCATION_SURPASSED_BASE_LIMITS",
		"of the platform": "There is no container instance that can be provided to this Durable Object, try again later",
	} {
		t.Run(name, func(t *testing.T) {
			w := &world{t, server, server.Worker()}
			spec := w.spec()
			spec.Env = map[string]string{"REFUSED": "1 3", "REFUSAL": refusal}
			w.wantError(w.worker.Spawn(t.Context(), spec, cloudflare.Limits{}), sandbox.CapacityExceeded, "")
			_, err := w.worker.Inspect(t.Context(), spec.Handle)
			w.wantError(err, sandbox.NotFound, sandbox.ReasonSandboxNotFound)
			if _, listed := w.find(spec.Handle); listed {
				t.Error("a sandbox that was not created is listed")
			}
			w.must(w.worker.Spawn(t.Context(), spec, cloudflare.Limits{}))
			w.sh(spec.Handle, "echo settlement > /data/board")
			w.must(w.worker.Sleep(t.Context(), spec.Handle))
			w.wantError(w.worker.Wake(t.Context(), spec.Handle), sandbox.CapacityExceeded, "")
			if s := w.inspect(spec.Handle); s.State != sandbox.StateStopped {
				t.Errorf("a sandbox that was not woken has the status %+v", s)
			}
			w.must(w.worker.Wake(t.Context(), spec.Handle))
			if got := w.sh(spec.Handle, "cat /data/board"); got != "settlement\n" {
				t.Errorf("the sandbox that was finally woken has %q", got)
			}
			w.wantPeriods(spec.Handle, cloudflare.CauseStartFailed, cloudflare.CauseSleep, cloudflare.CauseStartFailed, "")
		})
	}
}

// TestScriptSize: the uploaded script stays small.
func TestScriptSize(t *testing.T) {
	script, err := cloudflare.Script()
	if err != nil {
		if !strings.Contains(err.Error(), "make worker") {
			t.Errorf("a build without the Worker does not say what to do: %q", err)
		}
		return
	}
	if len(script) > 300<<10 || !bytes.Contains(script, []byte("Sandbox")) {
		t.Errorf("the Worker has %d bytes, want at most 300 KiB", len(script))
	}
}
