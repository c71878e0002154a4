package executortest

import (
	"bytes"
	"context"
	"strings"
	"testing"
	"time"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/driver"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// testFollow works for every backend: its commands are echo and sleep.
func testFollow(t *testing.T, cfg Config) {
	w := newWorld(t, cfg)
	shared := w.spawn(t)
	for name, test := range map[string]func(*testing.T, *world, driver.Handle){
		"a command that has ended is read again":      followEnded,
		"a command is run under its id once":          followOnce,
		"a detached command outlives its caller":      followDetached,
		"a detached command has its timeout":          followTimeout,
		"a command that its caller left is ended":     followLeft,
		"a command that is ended says that it was":    followEndedFromOutside,
		"a reader that leaves does not end a command": followLeaves,
		"a command that nobody ran":                   followUnknown,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test(t, w, shared)
		})
	}
	t.Run("a stopped sandbox knows no command", func(t *testing.T) {
		t.Parallel()
		followStopped(t, w)
	})
	t.Run("output", func(t *testing.T) {
		cfg.skip(t, "Follow/output")
		t.Parallel()
		w.needExec(t)
		followOutput(t, w)
	})
}

// named returns a request for a command with its own id.
func named(t *testing.T, command ...string) sandbox.ExecRequest {
	t.Helper()
	r, err := sandbox.ExecRequest{ID: sandbox.RandomIDs(sandbox.SandboxIDLength), Command: command}.Normalize()
	must(t, err)
	return r
}

// detached starts a command and stops waiting once it runs.
func (w *world) detached(t *testing.T, h driver.Handle, r sandbox.ExecRequest) string {
	t.Helper()
	r.Detach = true
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	ended := make(chan error, 1)
	go func() {
		_, err := w.x.Exec(ctx, h, r)
		ended <- err
	}()
	eventually(t, "the command is known", func() bool {
		_, err := w.x.Follow(t.Context(), h, sandbox.Replay{ID: r.ID, Now: true})
		return err == nil
	})
	cancel()
	if err := <-ended; err == nil {
		t.Fatal("the command ended before its caller left")
	}
	return r.ID
}

// follow reads a command to its end.
func (w *world) follow(t *testing.T, h driver.Handle, id string, from int64) (string, sandbox.ExecResult) {
	t.Helper()
	var out bytes.Buffer
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	res, err := w.x.Follow(ctx, h, sandbox.Replay{ID: id, Stdout: &out, StdoutOffset: from})
	must(t, err)
	return out.String(), res
}

func followEnded(t *testing.T, w *world, h driver.Handle) {
	r := named(t, "echo", "hello", "again")
	res, err := w.x.Exec(t.Context(), h, r)
	must(t, err)
	for from, want := range map[int64]string{0: "hello again\n", 6: "again\n", 12: "", 40: ""} {
		out, again := w.follow(t, h, r.ID, from)
		if out != want || again.ExitCode != 0 || again.StdoutBytes != 12 ||
			again.Duration != res.Duration || again.Truncated {
			t.Errorf("from %d: %q and %+v", from, out, again)
		}
	}
}

func followOnce(t *testing.T, w *world, h driver.Handle) {
	r := named(t, "echo", "once")
	_, err := w.x.Exec(t.Context(), h, r)
	must(t, err)
	r.Command = []string{"echo", "twice"}
	_, err = w.x.Exec(t.Context(), h, r)
	wantError(t, err, sandbox.Conflict, sandbox.ReasonOtherSettings)
	if out, _ := w.follow(t, h, r.ID, 0); out != "once\n" {
		t.Errorf("the command wrote %q", out)
	}
}

func followDetached(t *testing.T, w *world, h driver.Handle) {
	began := time.Now()
	id := w.detached(t, h, named(t, "sleep", "3s"))
	if time.Since(began) > 2*time.Second {
		t.Log("the machine is so busy that this shows less than it could")
	}
	if _, res := w.follow(t, h, id, 0); res.ExitCode != 0 || res.TimedOut || res.Duration.D() < 2900*time.Millisecond {
		t.Errorf("it ended with %+v", res)
	}
}

func followTimeout(t *testing.T, w *world, h driver.Handle) {
	r := named(t, "sleep", "1h")
	r.Timeout = sandbox.Duration(3 * time.Second)
	if _, res := w.follow(t, h, w.detached(t, h, r), 0); res.ExitCode != sandbox.ExitTimeout || !res.TimedOut {
		t.Errorf("it ended with %+v", res)
	}
}

func followLeft(t *testing.T, w *world, h driver.Handle) {
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	r := named(t, "sleep", "1h")
	if _, err := w.x.Exec(ctx, h, r); err == nil {
		t.Fatal("a command that its caller left has a result")
	}
	_, err := w.x.Follow(t.Context(), h, sandbox.Replay{ID: r.ID})
	wantError(t, err, sandbox.Failed, sandbox.ReasonExecFailed)
}

func followEndedFromOutside(t *testing.T, w *world, h driver.Handle) {
	id := w.detached(t, h, named(t, "sleep", "1h"))
	for range 2 {
		must(t, w.x.EndExec(t.Context(), h, id, ""))
	}
	_, err := w.x.Follow(t.Context(), h, sandbox.Replay{ID: id})
	wantError(t, err, sandbox.Failed, sandbox.ReasonExecFailed)
}

func followLeaves(t *testing.T, w *world, h driver.Handle) {
	id := w.detached(t, h, named(t, "sleep", "3s"))
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	if _, err := w.x.Follow(ctx, h, sandbox.Replay{ID: id}); err == nil {
		t.Fatal("the command has ended already")
	}
	if _, res := w.follow(t, h, id, 0); res.ExitCode != 0 {
		t.Errorf("it ended with %+v", res)
	}
}

func followUnknown(t *testing.T, w *world, h driver.Handle) {
	_, err := w.x.Follow(t.Context(), h, sandbox.Replay{ID: "nobody-ran-it"})
	wantError(t, err, sandbox.NotFound, sandbox.ReasonExecNotFound)
	must(t, w.x.EndExec(t.Context(), h, "nobody-ran-it", ""))
	absent := w.spec().Handle
	_, err = w.x.Follow(t.Context(), absent, sandbox.Replay{ID: "nobody-ran-it"})
	wantError(t, err, sandbox.NotFound, sandbox.ReasonSandboxNotFound)
	wantError(t, w.x.EndExec(t.Context(), absent, "nobody-ran-it", ""), sandbox.NotFound, sandbox.ReasonSandboxNotFound)
}

func followStopped(t *testing.T, w *world) {
	h := w.spawn(t)
	r := named(t, "echo", "gone")
	_, err := w.x.Exec(t.Context(), h, r)
	must(t, err)
	must(t, w.x.Sleep(t.Context(), h, sandbox.SleepStop))
	_, err = w.x.Follow(t.Context(), h, sandbox.Replay{ID: r.ID})
	wantError(t, err, sandbox.Conflict, sandbox.ReasonInvalidState)
	wake(t, w.x, h)
	_, err = w.x.Follow(t.Context(), h, sandbox.Replay{ID: r.ID})
	wantError(t, err, sandbox.NotFound, sandbox.ReasonExecNotFound)
}

// followOutput reads the output of commands: both streams, while the commands run, up to the limit.
func followOutput(t *testing.T, w *world) {
	h := w.spawn(t)
	r := named(t, "sh", "-c", "echo first; echo problem >&2; sleep 2; echo last; exit 3")
	id := w.detached(t, h, r)
	var out, errs bytes.Buffer
	res, err := w.x.Follow(t.Context(), h, sandbox.Replay{ID: id, Stdout: &out, Stderr: &errs, StderrOffset: 4})
	must(t, err)
	if out.String() != "first\nlast\n" || errs.String() != "lem\n" || res.ExitCode != 3 || res.StdoutBytes != 11 ||
		res.StderrBytes != 8 {
		t.Errorf("%q, %q, %+v", out.String(), errs.String(), res)
	}
	id = w.detached(t, h, named(t, "sh", "-c", "sleep 3; yes 1234567 | head -c 20000000; echo end >&2"))
	kept, res := w.follow(t, h, id, 0)
	if len(kept) != 16<<20 || !strings.HasPrefix(kept, "1234567\n") || !res.Truncated ||
		res.StdoutBytes != 20_000_000 || res.ExitCode != 0 {
		t.Errorf("%d bytes were kept, %+v", len(kept), res)
	}
	other := named(t, "sh", "-c", "echo as another; sleep 1h")
	other.User = "1234"
	id = w.detached(t, h, other)
	must(t, w.x.EndExec(t.Context(), h, id, "1234"))
	if n := w.alive(t, h, "sleep 1h"); n != 0 {
		t.Errorf("%d processes of a command that was ended are left", n)
	}
}
