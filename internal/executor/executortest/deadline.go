package executortest

import (
	"archive/tar"
	_ "embed"
	"strings"
	"testing"
	"time"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/driver"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

func testDeadline(t *testing.T, cfg Config) {
	w := newWorld(t, cfg)
	w.needExec(t)
	t.Run("a sandbox ends itself", func(t *testing.T) {
		t.Parallel()
		h := w.spawn(t, deadlineIn(w.soon()))
		w.awaitStopped(t, h)
	})
	t.Run("a paused sandbox ends as it thaws", func(t *testing.T) {
		t.Parallel()
		pausedDeadline(t, w)
	})
	t.Run("a stopped sandbox runs nothing past it", func(t *testing.T) {
		t.Parallel()
		in := w.soon()
		h := w.spawn(t, deadlineIn(in))
		must(t, w.x.Sleep(t.Context(), h, sandbox.SleepStop))
		time.Sleep(in) //nolint:forbidigo // until its deadline has passed
		if _, err := w.x.Wake(t.Context(), h); err != nil {
			wantError(t, err, sandbox.Failed, "")
		}
		w.awaitStopped(t, h)
	})
	t.Run("hostile code cannot put it off", func(t *testing.T) {
		t.Parallel()
		attackedDeadline(t, w)
	})
	t.Run("hostile code cannot keep a command from being ended", func(t *testing.T) {
		t.Parallel()
		attackedCommand(t, w)
	})
}

// soon is a lifetime that suffices to start and ends soon after.
func (w *world) soon() time.Duration {
	if w.StandIn { // a stand-in starts slowly
		return 10 * time.Second
	}
	return 2 * time.Second
}

func deadlineIn(d time.Duration) func(*driver.SandboxSpec) {
	return func(s *driver.SandboxSpec) { s.Deadline = time.Now().Add(d) }
}

func pausedDeadline(t *testing.T, w *world) {
	if !w.x.Capabilities().Pause {
		t.Skip("the backend cannot pause")
	}
	const in = 6 * time.Second // a busy machine needs part of it to start
	h := w.spawn(t, deadlineIn(in))
	must(t, w.x.Sleep(t.Context(), h, sandbox.SleepPause))
	time.Sleep(in) //nolint:forbidigo // until its deadline has passed
	w.wantState(t, h, sandbox.StatePaused)
	if _, err := w.x.Wake(t.Context(), h); err != nil {
		wantError(t, err, sandbox.Failed, "")
	}
	w.awaitStopped(t, h)
}

// attacker uses the rights of the sandbox's user to trace, stop, starve and read process 1.
//
//go:embed testdata/attacker.go
var attacker string

func attackedDeadline(t *testing.T, w *world) {
	const in = 12 * time.Second
	program := Compile(t, attacker)
	spec := w.spec()
	spec.Deadline = time.Now().Add(in)
	must(t, w.x.Spawn(t.Context(), spec))
	h := spec.Handle
	must(t, w.x.CopyTo(t.Context(), h, "/workspace", pack(t, executable("attacker", program))))
	res := w.exec(t, h, sandbox.ExecRequest{Command: []string{"/workspace/attacker"}})
	if res.ExitCode != 0 {
		t.Fatalf("the attacker ended with %+v: %s", res.ExitCode, res.Stderr)
	}
	for line := range strings.Lines(res.stdout()) {
		if attack, outcome, _ := strings.Cut(strings.TrimSpace(line), ": "); outcome == "succeeded" && !harmless[attack] &&
			w.Without["Deadline/"+attack] == "" {
			t.Errorf("%s: succeeded", attack)
		}
	}
	if time.Now().Before(spec.Deadline.Add(-time.Second)) {
		w.wantState(t, h, sandbox.StateRunning)
	}
	w.awaitStopped(t, h)
	if late := time.Since(spec.Deadline); late > patience/3 {
		t.Errorf("the sandbox ended %s after its deadline", late)
	}
}

// harmless are attacks that succeed: the kernel accepts these signals but never delivers them to process 1.
var harmless = map[string]bool{"SIGSTOP": true, "SIGKILL": true, "SIGTSTP": true}

func attackedCommand(t *testing.T, w *world) {
	h := w.spawn(t)
	script := "kill -STOP $PPID; kill -KILL $PPID; kill -KILL 1; sleep 7006"
	r, err := sandbox.ExecRequest{
		Command: []string{"sh", "-c", script},
		Timeout: sandbox.Duration(time.Second),
	}.Normalize()
	must(t, err)
	if res, err := w.x.Exec(t.Context(), h, r); err != nil || !res.TimedOut {
		t.Errorf("%s: %+v, %v", script, res, err)
	}
	if n := w.alive(t, h, "sleep 7006"); n != 0 {
		t.Errorf("%d processes of the command survive", n)
	}
}

func executable(name string, content []byte) tar.Header {
	h := file(name, string(content))
	h.Mode = 0o755
	return h
}
