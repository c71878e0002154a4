package servicetest

import (
	"bytes"
	"context"
	"errors"
	"strings"
	"time"

	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

var useTests = []test{
	{"EnvironmentLimitsCommandsThatSetNoTimeout", environmentLimitsCommandsThatSetNoTimeout},
	{"ExecCollectsOutput", execCollectsOutput},
	{"ExecStreams", execStreams},
	{"ExecKeepsBytes", execKeepsBytes},
	{"ExecEndsWithItsContext", execEndsWithItsContext},
	{"ExecNamesWrongFields", execNamesWrongFields},
	{"SandboxSleepsAndWakes", sandboxSleepsAndWakes},
}

func (w *world) exec(req sandbox.ExecRequest) sandbox.ExecResult {
	w.Helper()
	return must(w.Service.Exec(w.Context(), sandbox.LeaseRef{ID: annsLease}, req))(w)
}

func execCollectsOutput(w *world) {
	w.environment()
	w.acquire(ann)
	if r := w.exec(sandbox.ExecRequest{
		Command: []string{"echo", "hello", "wörld"},
	}); string(r.Stdout) != "hello wörld\n" || r.ExitCode != 0 || len(r.Stderr) != 0 || r.Truncated {
		w.Errorf("echo gave %+v", r)
	}
	if r := w.exec(sandbox.ExecRequest{Command: []string{"exit", "7"}}); r.ExitCode != 7 {
		w.Errorf("exit 7 gave %+v", r) // a command that fails is a result, not an error
	}
	if r := w.exec(sandbox.ExecRequest{Command: []string{"no-such-program"}}); r.ExitCode != 127 {
		w.Errorf("an unknown program gave %+v", r)
	}
	if r := w.exec(sandbox.ExecRequest{
		Command: []string{"sleep", "1h"},
		Timeout: sandbox.Duration(10 * time.Millisecond),
	}); r.ExitCode != sandbox.ExitTimeout || !r.TimedOut {
		w.Errorf("a command out of time gave %+v", r)
	}
	if r := w.exec(sandbox.ExecRequest{
		Command:     []string{"echo", "0123456789"},
		OutputLimit: 4,
	}); string(r.Stdout) != "0123" || !r.Truncated {
		w.Errorf("output over the limit gave %+v", r)
	}
}

func execStreams(w *world) {
	w.environment()
	w.acquire(ann)
	var stdout, stderr bytes.Buffer
	r := w.exec(sandbox.ExecRequest{
		Command: []string{"cat"},
		Stdin:   strings.NewReader("line 1\nline 2\n"),
		Stdout:  &stdout,
		Stderr:  &stderr,
	})
	if stdout.String() != "line 1\nline 2\n" || stderr.Len() != 0 || r.ExitCode != 0 || len(r.Stdout) != 0 {
		w.Errorf("cat wrote %q and %q, and gave %+v", stdout.String(), stderr.String(), r)
	}
	if r := w.exec(sandbox.ExecRequest{
		Command: []string{"cat"},
		Stdin:   strings.NewReader("collected"),
	}); string(r.Stdout) != "collected" {
		w.Errorf("cat without an output writer gave %+v", r)
	}
	var discarded bytes.Buffer
	if r := w.exec(sandbox.ExecRequest{Command: []string{"exit", "3"}, Stdout: &discarded}); r.ExitCode != 3 {
		w.Errorf("exit 3 gave %+v", r)
	}
	_, err := w.Service.Exec(w.Context(), sandbox.LeaseRef{ID: annsLease, Generation: 9},
		sandbox.ExecRequest{Command: []string{"echo"}, Stdout: &stdout})
	w.wantError(err, sandbox.Conflict, sandbox.ReasonOtherGeneration)
}

func execKeepsBytes(w *world) {
	w.environment()
	w.acquire(ann)
	raw := make([]byte, 100_000)
	for i := range raw {
		raw[i] = byte(i * 7) // not UTF-8, and cut at any byte
	}
	if r := w.exec(sandbox.ExecRequest{Command: []string{"cat"}, Stdin: bytes.NewReader(raw)}); !bytes.Equal(r.Stdout,
		raw) {
		w.Errorf("%d bytes came back as %d others", len(raw), len(r.Stdout))
	}
	var stdout bytes.Buffer
	w.exec(sandbox.ExecRequest{Command: []string{"cat"}, Stdin: strings.NewReader("ä<&>\u2028\x00€"), Stdout: &stdout})
	if stdout.String() != "ä<&>\u2028\x00€" {
		w.Errorf("text came back as %q", stdout.String())
	}
}

func execEndsWithItsContext(w *world) {
	w.environment()
	w.acquire(ann)
	ctx, cancel := context.WithCancel(w.Context())
	ended := make(chan error, 1)
	go func() {
		_, err := w.Service.Exec(ctx, sandbox.LeaseRef{ID: annsLease},
			sandbox.ExecRequest{Command: []string{"sleep", "1h"}, Timeout: sandbox.Duration(2 * time.Hour)})
		ended <- err
	}()
	w.waitForEvent(sandbox.EventExecStarted)
	cancel()
	w.wantError(<-ended, sandbox.UnknownOutcome, "")
	w.waitForEvent(sandbox.EventExecCancelled) // the command was ended too
}

// waitForEvent waits until the agent's sandbox has an event.
func (w *world) waitForEvent(kind sandbox.EventType) {
	w.Helper()
	found := errors.New("found")
	ctx, cancel := context.WithTimeout(w.Context(), 30*time.Second)
	defer cancel()
	err := w.Service.FollowEvents(ctx, sandbox.EventFilter{LeaseID: annsLease}, func(e sandbox.Event) error {
		if e.Type == kind {
			return found
		}
		return nil
	})
	if !errors.Is(err, found) {
		w.Fatalf("no event %s: %v", kind, err)
	}
}

func execNamesWrongFields(w *world) {
	w.environment()
	w.acquire(ann)
	_, err := w.Service.Exec(w.Context(), sandbox.LeaseRef{ID: annsLease},
		sandbox.ExecRequest{Cwd: "/etc", Env: map[string]string{"A B": ""}, Timeout: sandbox.Duration(25 * time.Hour)})
	w.wantError(err, sandbox.Invalid, "", "command", "cwd", "env.A B", "timeout")
}

func sandboxSleepsAndWakes(w *world) {
	idle := sandbox.Duration(5 * time.Minute)
	w.environment(func(p *sandbox.PutEnvironment) { p.SleepAfter = &idle })
	w.acquire(ann)
	ref := sandbox.LeaseRef{ID: annsLease}
	phase := func(want sandbox.Phase, l sandbox.Lease) {
		w.Helper()
		if l.Phase != want || l.Status != sandbox.LeaseActive {
			w.Errorf("the lease is %s and %s, want %s", l.Status, l.Phase, want)
		}
	}
	for range 2 {
		phase(sandbox.PhaseAsleep, must(w.Service.Sleep(w.Context(), ref))(w))
	}
	for range 2 {
		phase(sandbox.PhaseAwake, must(w.Service.Wake(w.Context(), ref))(w))
	}
	w.Advance(6 * time.Minute)
	phase(sandbox.PhaseAsleep, w.lease(ann))
	w.exec(sandbox.ExecRequest{Command: []string{"echo"}}) // the next use wakes it
	phase(sandbox.PhaseAwake, w.lease(ann))
}

func environmentLimitsCommandsThatSetNoTimeout(w *world) {
	limited := func(limit time.Duration) func(p *sandbox.PutEnvironment) {
		return func(p *sandbox.PutEnvironment) { p.CommandTimeout = sandbox.Duration(limit) }
	}
	w.environment(limited(time.Second))
	w.acquire(ann)
	ref := sandbox.LeaseRef{ID: annsLease}
	long := sandbox.ExecRequest{ID: "long", Command: []string{"sleep", "1h"}}
	first := must(w.Service.Exec(w.Context(), ref, long))(w)
	if !first.TimedOut {
		w.Errorf("a command that sets no timeout ends as %+v", first)
	}
	begun := must(w.Service.StartExec(w.Context(), ref, sandbox.ExecRequest{Command: []string{"true"}}))(w)
	run := must(w.Service.Run(w.Context(), sandbox.RunRequest{
		EnvironmentID: game, ExecRequest: sandbox.ExecRequest{Command: []string{"sleep", "1h"}},
	}))(w)
	if begun.Timeout.D() != time.Second || !run.TimedOut {
		w.Errorf("a detached command has %s, and a run ends as %+v", begun.Timeout, run.ExecResult)
	}

	// A change applies to live leases. The same request finds the command that it began before.
	w.environment(limited(time.Hour))
	later := must(w.Service.StartExec(w.Context(), ref, sandbox.ExecRequest{Command: []string{"true"}}))(w)
	again := must(w.Service.Exec(w.Context(), ref, long))(w)
	if later.Timeout.D() != time.Hour || !again.TimedOut || again.ExecID != first.ExecID {
		w.Errorf("after a change a command has %s, and the first one is %+v", later.Timeout, again)
	}
	_, err := w.Service.PutEnvironment(w.Context(), sandbox.PutEnvironment{ID: game, Owner: owner,
		EnvironmentSpec: sandbox.EnvironmentSpec{Image: "player", CommandTimeout: sandbox.Duration(25 * time.Hour)}})
	w.wantError(err, sandbox.Invalid, "", "command_timeout")
}
