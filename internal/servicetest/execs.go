package servicetest

import (
	"context"
	"io"
	"strings"
	"time"

	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

var execTests = []test{
	{"CommandsAreRecorded", commandsAreRecorded},
	{"CommandsAreListedInPages", commandsAreListedInPages},
	{"AnIDNamesOneCommand", anIDNamesOneCommand},
	{"ACommandIsRunOnceUnderItsID", aCommandIsRunOnceUnderItsID},
	{"ADetachedCommandGoesOn", aDetachedCommandGoesOn},
	{"ADetachedCommandTakesNoStdin", aDetachedCommandTakesNoStdin},
	{"ACommandThatNoProgramCanGetIsRefused", aCommandThatNoProgramCanGet},
	{"CommandsAreCancelled", commandsAreCancelled},
	{"CancellingEndsAnExecThatIsWaitedFor", cancellingEndsAnExec},
	{"CommandsEndWithTheirLease", commandsEndWithTheirLease},
	{"OutputIsKeptFromAnyOffset", outputIsKept},
	{"OutputIsFollowed", outputIsFollowed},
	{"OutputOutlivesTheSandboxUntilItIsPurged", outputOutlivesTheSandbox},
	{"CommandsOfOthersAreNotShown", commandsOfOthers},
}

func (w *world) ref(id string) sandbox.ExecRef { return sandbox.ExecRef{LeaseID: annsLease, ID: id} }

// wantExec waits until a command is no longer running and checks its result.
func (w *world) wantExec(id string, state sandbox.ExecState) sandbox.Exec {
	w.Helper()
	events := map[sandbox.ExecState]sandbox.EventType{sandbox.ExecFinished: sandbox.EventExecFinished,
		sandbox.ExecFailed: sandbox.EventExecFailed, sandbox.ExecCancelled: sandbox.EventExecCancelled}
	w.waitForEvent(events[state])
	x := must(w.Service.GetExec(w.Context(), w.ref(id)))(w)
	if x.State != state || x.FinishedAt.IsZero() {
		w.Errorf("command %s is %s since %v: %s; want %s", id, x.State, x.FinishedAt, x.Error, state)
	}
	return x
}

func (w *world) start(req sandbox.ExecRequest) sandbox.Exec {
	w.Helper()
	return must(w.Service.StartExec(w.Context(), sandbox.LeaseRef{ID: annsLease}, req))(w)
}

// output reads the current output of a stream.
func (w *world) output(o sandbox.OutputRequest) string {
	w.Helper()
	r := must(w.Service.ReadExec(w.Context(), o))(w)
	b, err := io.ReadAll(r)
	if err != nil {
		w.Fatal(err)
	}
	if err := r.Close(); err != nil {
		w.Error(err)
	}
	return string(b)
}

func commandsAreRecorded(w *world) {
	w.environment()
	l := w.acquire(ann)
	began := w.Now()
	r := w.exec(sandbox.ExecRequest{
		Command: []string{"exit", "3"},
		Env:     map[string]string{"TOKEN": "secret"},
		Cwd:     "maps",
		User:    "1001",
	})
	x := must(w.Service.GetExec(w.Context(), w.ref(r.ExecID)))(w)
	if x.State != sandbox.ExecFinished || !exited(x.ExitCode, 3) ||
		x.Command[0] != "exit" || x.Cwd != "/workspace/maps" || x.User != "1001" ||
		len(x.EnvNames) != 1 || x.EnvNames[0] != "TOKEN" || x.Generation != 1 || x.SandboxID != l.SandboxID || x.Detached ||
		x.StartedAt.Before(began) || x.FinishedAt.Before(x.StartedAt) || x.Timeout != sandbox.DefaultExecTimeout {
		w.Errorf("the record is %+v", x)
	}
	events := must(w.Service.ListEvents(w.Context(), sandbox.EventFilter{SandboxID: l.SandboxID}))(w)
	last := events[len(events)-1]
	if x.LastEventSequence != last.Sequence || last.Type != sandbox.EventExecFinished ||
		!strings.Contains(string(last.Data), `"exec_id":"`+x.ID+`"`) {
		w.Errorf("the record is at %d, and the last event is %+v %s", x.LastEventSequence, last, last.Data)
	}
	_, err := w.Service.GetExec(w.Context(), w.ref("none"))
	w.wantError(err, sandbox.NotFound, sandbox.ReasonExecNotFound)
}

func commandsAreListedInPages(w *world) {
	w.environment()
	w.acquire(ann)
	var ids []string
	for range 5 {
		ids = append(ids, w.exec(sandbox.ExecRequest{Command: []string{"echo"}}).ExecID)
	}
	f := sandbox.ExecFilter{LeaseID: annsLease, Limit: 2}
	for _, want := range [][]string{{ids[4], ids[3]}, {ids[2], ids[1]}, {ids[0]}, {}} {
		page := must(w.Service.ListExecs(w.Context(), f))(w)
		var got []string
		for _, x := range page {
			got = append(got, x.ID)
		}
		if strings.Join(got, " ") != strings.Join(want, " ") {
			w.Errorf("before %q: %q, want %q", f.Before, got, want)
		}
		if len(page) > 0 {
			f.Before = page[len(page)-1].ID
		}
	}
	if running := must(w.Service.ListExecs(w.Context(),
		sandbox.ExecFilter{LeaseID: annsLease, State: sandbox.ExecRunning}))(w); len(running) != 0 {
		w.Errorf("these run: %+v", running)
	}
	_, err := w.Service.ListExecs(w.Context(), sandbox.ExecFilter{LeaseID: sandbox.LeaseID(bob, game)})
	w.wantError(err, sandbox.NotFound, sandbox.ReasonSandboxNotFound)
	_, err = w.Service.ListExecs(w.Context(), sandbox.ExecFilter{LeaseID: annsLease, Before: "none"})
	w.wantError(err, sandbox.NotFound, sandbox.ReasonExecNotFound)
}

func anIDNamesOneCommand(w *world) {
	w.environment()
	w.acquire(ann)
	w.acquire(bob)
	req := sandbox.ExecRequest{ID: "build-1", Command: []string{"echo", "one"}, Env: map[string]string{"A": "1"}}
	w.exec(req)
	other := req
	other.Command, other.Env, other.Timeout = []string{"echo", "two"}, nil, sandbox.Duration(time.Minute)
	_, err := w.Service.Exec(w.Context(), sandbox.LeaseRef{ID: annsLease}, other)
	w.wantError(err, sandbox.Conflict, sandbox.ReasonOtherSettings, "command", "env", "timeout")
	_, err = w.Service.Exec(w.Context(), sandbox.LeaseRef{ID: sandbox.LeaseID(bob, game)}, req)
	w.wantError(err, sandbox.Conflict, sandbox.ReasonOtherSettings, "lease")
	_, err = w.Service.StartExec(w.Context(), sandbox.LeaseRef{ID: annsLease}, req)
	w.wantError(err, sandbox.Conflict, sandbox.ReasonOtherSettings, "detach")
	for _, id := range []string{"Build", "-x", strings.Repeat("a", 64), "a/b"} {
		_, err = w.Service.Exec(w.Context(), sandbox.LeaseRef{ID: annsLease},
			sandbox.ExecRequest{ID: id, Command: []string{"echo"}})
		w.wantError(err, sandbox.Invalid, "", "id")
	}
}

func aCommandIsRunOnceUnderItsID(w *world) {
	w.environment()
	w.acquire(ann)
	req := sandbox.ExecRequest{ID: "build-1", Command: []string{"echo", "once"}}
	first := w.exec(req)
	for range 2 {
		if again := w.exec(req); string(again.Stdout) != "once\n" || again.ExecID != "build-1" || again.ExitCode != 0 ||
			again.StdoutBytes != first.StdoutBytes {
			w.Errorf("the command again: %+v, at first %+v", again, first)
		}
	}
	var streamed strings.Builder
	req.Stdout = &streamed
	if w.exec(req); streamed.String() != "once\n" {
		w.Errorf("the command again, streamed: %q", streamed.String())
	}
	if all := must(w.Service.ListExecs(w.Context(), sandbox.ExecFilter{LeaseID: annsLease}))(w); len(all) != 1 {
		w.Errorf("there are %d commands", len(all))
	}
	w.Pass(time.Second) // a condition ends only leases that began before it
	w.deliver("game.finished")
	w.Advance(time.Minute)
	req.Stdout = nil
	if again := w.exec(req); string(again.Stdout) != "once\n" { // the command's result outlives the lease
		w.Errorf("the command again, after the end: %+v", again)
	}
}

func aDetachedCommandGoesOn(w *world) {
	w.environment()
	w.acquire(ann)
	ctx, cancel := context.WithCancel(w.Context())
	x := must(w.Service.StartExec(ctx, sandbox.LeaseRef{ID: annsLease},
		sandbox.ExecRequest{ID: "long", Command: []string{"sleep", "2s"}}))(w)
	cancel()
	if x.ID != "long" || x.State != sandbox.ExecRunning || !x.Detached || x.StartedAt.IsZero() || !x.FinishedAt.IsZero() {
		w.Errorf("it returned %+v", x)
	}
	again := w.start(sandbox.ExecRequest{ID: "long", Command: []string{"sleep", "2s"}})
	if again.ID != x.ID || !again.StartedAt.Equal(x.StartedAt) {
		w.Errorf("the same request again gave %+v", again)
	}
	if x := w.wantExec("long", sandbox.ExecFinished); !exited(x.ExitCode, 0) || x.TimedOut {
		w.Errorf("it ended as %+v", x)
	}
	late := w.start(sandbox.ExecRequest{
		Command: []string{"sleep", "1h"},
		Timeout: sandbox.Duration(50 * time.Millisecond),
	})
	w.output(sandbox.OutputRequest{ExecRef: w.ref(late.ID), Stream: sandbox.Stdout, Follow: true})
	if x := w.wantExec(late.ID, sandbox.ExecFinished); !x.TimedOut || !exited(x.ExitCode, sandbox.ExitTimeout) {
		w.Errorf("out of time, it ended as %+v", x)
	}
}

// A command that is too large for a program, or contains NUL, leaves no record.
func aCommandThatNoProgramCanGet(w *world) {
	w.environment()
	w.acquire(ann)
	ref := sandbox.LeaseRef{ID: annsLease}
	large := []string{"echo", strings.Repeat("x", sandbox.MaxCommand/2)}
	for what, r := range map[string]sandbox.ExecRequest{
		"arguments": {Command: append(large, large...)},
		"variables": {Command: large, Env: map[string]string{"A": large[1]}},
		"NUL":       {Command: []string{"echo", "a\x00b"}},
	} {
		_, err := w.Service.Exec(w.Context(), ref, r)
		w.wantError(err, sandbox.Invalid, "", "command")
		_, err = w.Service.StartExec(w.Context(), ref, r)
		w.wantError(err, sandbox.Invalid, "", "command")
		_, err = w.Service.StartProcess(w.Context(), ref, sandbox.ProcessSpec{Name: "p", Command: r.Command, Env: r.Env})
		w.wantError(err, sandbox.Invalid, "", "command")
		recorded := must(w.Service.ListExecs(w.Context(), sandbox.ExecFilter{LeaseID: annsLease}))(w)
		started := must(w.Service.ListProcesses(w.Context(), annsLease))(w)
		if len(recorded)+len(started) > 0 {
			w.Errorf("%s: there are %d commands and %d processes", what, len(recorded), len(started))
		}
	}
}

func aDetachedCommandTakesNoStdin(w *world) {
	w.environment()
	w.acquire(ann)
	_, err := w.Service.StartExec(w.Context(), sandbox.LeaseRef{ID: annsLease},
		sandbox.ExecRequest{Command: []string{"cat"}, Stdin: strings.NewReader("x")})
	w.wantError(err, sandbox.Invalid, "", "stdin")
	_, err = w.Service.Exec(w.Context(), sandbox.LeaseRef{ID: annsLease},
		sandbox.ExecRequest{Command: []string{"cat"}, Detach: true})
	w.wantError(err, sandbox.Invalid, "", "detach")
}

func commandsAreCancelled(w *world) {
	w.environment()
	w.acquire(ann)
	x := w.start(sandbox.ExecRequest{Command: []string{"sleep", "1h"}})
	_, err := w.Service.Sleep(w.Context(), sandbox.LeaseRef{ID: annsLease})
	w.wantError(err, sandbox.Conflict, sandbox.ReasonInvalidState) // the sandbox is in use
	for range 2 {
		if got := must(w.Service.CancelExec(w.Context(), w.ref(x.ID)))(w); got.State != sandbox.ExecCancelled ||
			got.Error == "" {
			w.Errorf("cancelled, it is %+v", got)
		}
	}
	w.wantExec(x.ID, sandbox.ExecCancelled)
	done := w.exec(sandbox.ExecRequest{Command: []string{"echo"}})
	if got := must(w.Service.CancelExec(w.Context(), w.ref(done.ExecID)))(w); got.State != sandbox.ExecFinished {
		w.Errorf("a command that had finished is %s once it is cancelled", got.State)
	}
	_, err = w.Service.CancelExec(w.Context(), w.ref("none"))
	w.wantError(err, sandbox.NotFound, sandbox.ReasonExecNotFound)
	must(w.Service.Sleep(w.Context(), sandbox.LeaseRef{ID: annsLease}))(w)
}

func cancellingEndsAnExec(w *world) {
	w.environment()
	w.acquire(ann)
	ended := make(chan error, 1)
	go func() {
		_, err := w.Service.Exec(w.Context(), sandbox.LeaseRef{ID: annsLease},
			sandbox.ExecRequest{ID: "waited-for", Command: []string{"sleep", "1h"}, Timeout: sandbox.Duration(2 * time.Hour)})
		ended <- err
	}()
	w.waitForEvent(sandbox.EventExecStarted)
	must(w.Service.CancelExec(w.Context(), w.ref("waited-for")))(w)
	w.wantError(<-ended, sandbox.Failed, sandbox.ReasonExecCancelled)
	_, err := w.Service.Exec(w.Context(), sandbox.LeaseRef{ID: annsLease},
		sandbox.ExecRequest{ID: "waited-for", Command: []string{"sleep", "1h"}, Timeout: sandbox.Duration(2 * time.Hour)})
	w.wantError(err, sandbox.Failed, sandbox.ReasonExecCancelled) // it is still the same command
}

func commandsEndWithTheirLease(w *world) {
	w.environment()
	w.acquire(ann)
	x := w.start(sandbox.ExecRequest{Command: []string{"sleep", "1h"}})
	w.Pass(time.Second) // a condition ends only leases that began before it
	w.deliver("game.finished")
	w.Advance(time.Minute)
	if got := w.wantExec(x.ID, sandbox.ExecCancelled); !strings.Contains(got.Error, "condition") {
		w.Errorf("it is said that %s", got.Error)
	}
}

// large is more than the ledger itself keeps of a stream.
var large = strings.Repeat("0123456789abcdef", 4096)

func outputIsKept(w *world) {
	w.environment()
	w.acquire(ann)
	for _, text := range []string{"", "short", large} {
		r := w.exec(sandbox.ExecRequest{Command: []string{"cat"}, Stdin: strings.NewReader(text)})
		for _, offset := range []int{0, 3, len(text) - 1, len(text), len(text) + 7} {
			want := text[min(max(offset, 0), len(text)):]
			for _, follow := range []bool{false, true} {
				o := sandbox.OutputRequest{
					ExecRef: w.ref(r.ExecID),
					Stream:  sandbox.Stdout,
					Offset:  int64(max(offset, 0)),
					Follow:  follow,
				}
				if offset < 0 {
					want = text
				}
				if got := w.output(o); got != want {
					w.Errorf("of %d bytes, %d were read from %d on, want %d", len(text), len(got), offset, len(want))
				}
			}
		}
		if got := w.output(sandbox.OutputRequest{ExecRef: w.ref(r.ExecID), Stream: sandbox.Stderr}); got != "" {
			w.Errorf("nothing was written to stderr, and %q is read", got)
		}
		if x := must(w.Service.GetExec(w.Context(), w.ref(r.ExecID)))(w); x.StdoutBytes != int64(len(text)) ||
			x.Truncated || x.Error != "" {
			w.Errorf("the record of %d bytes is %+v", len(text), x)
		}
	}
	r := w.exec(sandbox.ExecRequest{Command: []string{"echo"}})
	_, err := w.Service.ReadExec(w.Context(), sandbox.OutputRequest{ExecRef: w.ref(r.ExecID), Stream: "stdin", Offset: -1})
	w.wantError(err, sandbox.Invalid, "", "stream", "offset")
	_, err = w.Service.ReadExec(w.Context(), sandbox.OutputRequest{ExecRef: w.ref("none"), Stream: sandbox.Stdout})
	w.wantError(err, sandbox.NotFound, sandbox.ReasonExecNotFound)
}

func outputIsFollowed(w *world) {
	w.environment()
	w.acquire(ann)
	x := w.start(sandbox.ExecRequest{Command: []string{"sleep", "300ms"}})
	if got := w.output(sandbox.OutputRequest{ExecRef: w.ref(x.ID), Stream: sandbox.Stdout}); got != "" {
		w.Errorf("it has written %q", got)
	}
	for range 2 { // while it runs, and after
		if got := w.output(sandbox.OutputRequest{ExecRef: w.ref(x.ID), Stream: sandbox.Stdout, Follow: true}); got != "" {
			w.Errorf("it has written %q", got)
		}
		if got := must(w.Service.GetExec(w.Context(), w.ref(x.ID)))(w); got.State != sandbox.ExecFinished {
			w.Errorf("followed to its end, it is %s", got.State)
		}
	}
}

func outputOutlivesTheSandbox(w *world) {
	w.environment()
	w.acquire(ann)
	r := w.exec(sandbox.ExecRequest{ID: "chosen", Command: []string{"cat"}, Stdin: strings.NewReader(large)})
	w.Pass(time.Second) // a condition ends only leases that began before it
	w.deliver("game.finished")
	w.Advance(2 * time.Hour)
	if w.Running() != 0 {
		w.Fatal("the sandbox is not gone")
	}
	if got := w.output(sandbox.OutputRequest{ExecRef: w.ref(r.ExecID), Stream: sandbox.Stdout}); got != large {
		w.Errorf("%d bytes are left of %d", len(got), len(large))
	}
	w.Advance(time.Hour) // usage is counted before it is removed
	w.Purge(time.Hour)
	_, err := w.Service.GetExec(w.Context(), w.ref(r.ExecID))
	w.wantError(err, sandbox.NotFound, sandbox.ReasonExecNotFound)
	must(w.Service.ReopenEnvironment(w.Context(), game))(w)
	w.acquire(ann)
	_, err = w.Service.Exec(w.Context(), sandbox.LeaseRef{ID: annsLease},
		sandbox.ExecRequest{ID: "chosen", Command: []string{"cat"}})
	w.wantError(err, sandbox.Conflict, sandbox.ReasonOtherSettings) // an id is never reused
}

func commandsOfOthers(w *world) {
	w.environment()
	w.acquire(ann)
	w.acquire(bob)
	r := w.exec(sandbox.ExecRequest{Command: []string{"echo"}})
	_, err := w.Service.GetExec(w.Context(), sandbox.ExecRef{LeaseID: sandbox.LeaseID(bob, game), ID: r.ExecID})
	w.wantError(err, sandbox.NotFound, sandbox.ReasonExecNotFound)
	_, err = w.Service.ReadExec(w.Context(), sandbox.OutputRequest{
		ExecRef: sandbox.ExecRef{LeaseID: sandbox.LeaseID(bob, game), ID: r.ExecID},
		Stream:  sandbox.Stdout,
	})
	w.wantError(err, sandbox.NotFound, sandbox.ReasonExecNotFound)
}

// exited reports whether an exit code is known and has this value.
func exited(code *int, want int) bool { return code != nil && *code == want }
