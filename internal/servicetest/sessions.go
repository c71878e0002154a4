package servicetest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

var sessionTests = []test{
	{"ASessionIsCreatedOnceUnderItsID", aSessionIsCreatedOnce},
	{"ASessionThatIsNotValidIsRefused", aSessionThatIsNotValid},
	{"VariablesAndDirectoryOfASessionAreItsOwn", variablesOfASessionAreItsOwn},
	{"ALineOfTheShellLeavesItsStateToTheNext", aLineLeavesItsState},
	{"WhatMayNotBeSetIsNotKept", whatMayNotBeSetIsNotKept},
	{"ACommandOfASessionHasItsOwnVariablesFirst", aCommandHasItsOwnVariablesFirst},
	{"OneCommandAtATimeRunsInASession", oneCommandAtATime},
	{"ASessionIsRecorded", aSessionIsRecorded},
	{"ARecordingIsReadInPages", aRecordingIsReadInPages},
	{"EveryViewerSeesTheSame", everyViewerSeesTheSame},
	{"ClosingASessionCancelsItsCommand", closingASession},
	{"ASessionClosesWithItsSandbox", aSessionClosesWithItsSandbox},
	{"ARecordingIsKeptUntilItsSandboxIsPurged", aRecordingIsKept},
	{"SessionsOfOthersAreNotShown", sessionsOfOthers},
	{"CommandsWithoutASessionHaveNoShell", noShellWithoutASession},
}

func (w *world) session(c sandbox.CreateSession) sandbox.Session {
	w.Helper()
	return must(w.Service.CreateSession(w.Context(), sandbox.LeaseRef{ID: annsLease}, c))(w)
}

func (w *world) sessionRef(id string) sandbox.SessionRef {
	return sandbox.SessionRef{LeaseID: annsLease, ID: id}
}

// line runs a shell line in a session and returns its output.
func (w *world) line(session, line string) string {
	w.Helper()
	return string(w.exec(sandbox.ExecRequest{Session: session, Shell: line}).Stdout)
}

// recorded returns the recording of session s, one event per line.
func (w *world) recorded() []string {
	w.Helper()
	return texts(must(w.Service.ListSessionEvents(w.Context(),
		sandbox.SessionEventFilter{SessionRef: w.sessionRef("s")}))(w))
}

// texts formats events without the parts that vary.
func texts(events []sandbox.SessionEvent) []string {
	var lines []string
	for _, e := range events {
		data, _, _ := strings.Cut(string(e.Data), " after ")
		lines = append(lines, fmt.Sprintf("%d %s %s %s", e.Sequence, e.Type, e.Source, strings.TrimSpace(data)))
	}
	return lines
}

func (w *world) wantTexts(got []string, want ...string) {
	w.Helper()
	if d := cmp.Diff(want, got); d != "" {
		w.Errorf("want (-), got (+):\n%s", d)
	}
}

func aSessionIsCreatedOnce(w *world) {
	w.environment()
	l := w.acquire(ann)
	c := sandbox.CreateSession{
		ID:   "turn-1",
		Env:  map[string]string{"TURN": "1", "KEY": "secret"},
		Cwd:  "maps",
		User: "1001",
	}
	s := w.session(c)
	if s.ID != "turn-1" || s.LeaseID != annsLease || s.Generation != 1 || s.SandboxID != l.SandboxID ||
		s.State != sandbox.SessionOpen || !slices.Equal(s.EnvNames, []string{"KEY", "TURN"}) || s.Cwd != "/workspace/maps" ||
		s.User != "1001" || s.CreatedAt.IsZero() || s.ExecID != "" {
		w.Errorf("the session is %+v", s)
	}
	w.line("turn-1", "cd /data; export MORE=1")
	if again := w.session(c); again.CreatedAt != s.CreatedAt || again.Cwd != "/data" || again.IsNew || !s.IsNew {
		w.Errorf("the same request again gave %+v", again)
	}
	other := c
	other.Env, other.Cwd, other.User = nil, "", ""
	_, err := w.Service.CreateSession(w.Context(), sandbox.LeaseRef{ID: annsLease}, other)
	w.wantError(err, sandbox.Conflict, sandbox.ReasonOtherSettings, "env", "cwd", "user")
	w.acquire(bob) // ids are per sandbox
	must(w.Service.CreateSession(w.Context(), sandbox.LeaseRef{ID: sandbox.LeaseID(bob, game)}, other))(w)
	if a, b := w.session(sandbox.CreateSession{}), w.session(sandbox.CreateSession{}); a.ID == "" || a.ID == b.ID {
		w.Errorf("issued ids are %q and %q", a.ID, b.ID)
	}
	if all := must(w.Service.ListSessions(w.Context(), sandbox.SessionFilter{LeaseID: annsLease}))(w); len(all) != 3 {
		w.Errorf("there are %d sessions, want 3", len(all))
	}
	events := must(w.Service.ListEvents(w.Context(),
		sandbox.EventFilter{SandboxID: l.SandboxID, Type: string(sandbox.EventSessionOpened)}))(w)
	if len(events) != 3 || !strings.Contains(string(events[0].Data), `"session_id":"turn-1"`) {
		w.Errorf("the events are %+v", events)
	}
}

func aSessionThatIsNotValid(w *world) {
	w.environment(func(p *sandbox.PutEnvironment) { p.EnvBlocked = []string{"MINE"} })
	create := func(c sandbox.CreateSession) error {
		_, err := w.Service.CreateSession(w.Context(), sandbox.LeaseRef{ID: annsLease}, c)
		return err
	}
	w.wantError(create(sandbox.CreateSession{}), sandbox.NotFound, sandbox.ReasonSandboxNotFound)
	w.acquire(ann)
	w.wantError(create(sandbox.CreateSession{ID: "Turn", Cwd: "/etc", Env: map[string]string{"DB_PASSWORD": "x"}}),
		sandbox.Invalid, "", "id", "cwd", "env.DB_PASSWORD")
	w.wantError(create(sandbox.CreateSession{Env: map[string]string{"MINE": "x"}}), sandbox.Invalid, "", "env.MINE")
	w.wantError(create(sandbox.CreateSession{Env: map[string]string{"AGENT_DID": "did:plc:bob", "ENVIRONMENT_ID": ""}}),
		sandbox.Invalid, "", "env.AGENT_DID", "env.ENVIRONMENT_ID")
	_, environment, err := sandbox.ParseLeaseID(annsLease)
	if err != nil {
		w.Fatal(err)
	}
	own := map[string]string{"AGENT_DID": ann, "ENVIRONMENT_ID": environment, "TURN_NUMBER": "3"}
	s := must(w.Service.CreateSession(w.Context(), sandbox.LeaseRef{ID: annsLease}, sandbox.CreateSession{ID: "own", Env: own}))(w)
	if !slices.Equal(s.EnvNames, []string{"TURN_NUMBER"}) || len(own) != 3 {
		w.Errorf("with what the sandbox has already, it is %+v", s)
	}
	w.wantError(create(sandbox.CreateSession{Env: map[string]string{"A": strings.Repeat("x", sandbox.MaxSessionEnv)}}),
		sandbox.Invalid, "", "env")
	_, err = w.Service.CreateSession(w.Context(), sandbox.LeaseRef{ID: annsLease, Generation: 2}, sandbox.CreateSession{})
	w.wantError(err, sandbox.Conflict, sandbox.ReasonOtherGeneration)
	_, err = w.Service.GetSession(w.Context(), w.sessionRef("none"))
	w.wantError(err, sandbox.NotFound, sandbox.ReasonSessionNotFound)
	_, err = w.Service.Exec(w.Context(), sandbox.LeaseRef{ID: annsLease},
		sandbox.ExecRequest{Session: "none", Command: []string{"echo"}})
	w.wantError(err, sandbox.NotFound, sandbox.ReasonSessionNotFound)
}

func variablesOfASessionAreItsOwn(w *world) {
	w.environment()
	w.acquire(ann)
	w.session(sandbox.CreateSession{ID: "one", Env: map[string]string{"TURN": "1"}, Cwd: "/data"})
	w.session(sandbox.CreateSession{ID: "two", Env: map[string]string{"TURN": "2"}})
	w.line("one", "export ONLY=one")
	for session, want := range map[string]string{"one": "1 one /data", "two": "2  /workspace", "": "  /workspace"} {
		get := func(command ...string) string {
			return strings.TrimSpace(string(w.exec(sandbox.ExecRequest{Session: session, Command: command}).Stdout))
		}
		if got := get("printenv", "TURN") + " " + get("printenv", "ONLY") + " " + get("pwd"); got != want {
			w.Errorf("in session %q: %q, want %q", session, got, want)
		}
	}
}

func aLineLeavesItsState(w *world) {
	w.environment()
	w.acquire(ann)
	w.session(sandbox.CreateSession{ID: "s", Env: map[string]string{"A": "1", "B": "1"}})
	w.line("s", "cd sub && export A=2 && unset B && export C=x")
	if got := w.line("s", "pwd; echo $A-$B-$C"); got != "/workspace/sub\n2--x\n" {
		w.Errorf("the next line has %q", got)
	}
	if got := must(w.Service.GetSession(w.Context(), w.sessionRef("s")))(w); got.Cwd != "/workspace/sub" ||
		!slices.Equal(got.EnvNames, []string{"A", "C"}) {
		w.Errorf("the session is %+v", got)
	}
	if r := w.exec(sandbox.ExecRequest{Session: "s", Shell: "export A=3; exit 1"}); r.ExitCode == 0 || r.Shell != nil {
		w.Errorf("it ended as %+v", r)
	}
	if got := w.line("s", "echo $A"); got != "3\n" { // as in a shell, whatever its exit code is
		w.Errorf("after a line that failed, there is %q", got)
	}
	timeout := w.exec(sandbox.ExecRequest{
		Session: "s",
		Shell:   "export A=4; sleep 1h",
		Timeout: sandbox.Duration(20 * time.Millisecond),
	})
	if got := w.line("s", "echo $A"); !timeout.TimedOut || got != "3\n" {
		w.Errorf("after a line that ran out of time (%+v), there is %q", timeout, got)
	}
}

func whatMayNotBeSetIsNotKept(w *world) {
	w.environment(func(p *sandbox.PutEnvironment) { p.EnvBlocked = []string{"MINE"} })
	w.acquire(ann)
	w.session(sandbox.CreateSession{ID: "s"})
	w.line("s", "export MINE=1; export DB_PASSWORD=1; export OTHER=1; cd /etc")
	if got := must(w.Service.GetSession(w.Context(), w.sessionRef("s")))(w); got.Cwd != "/workspace" ||
		!slices.Equal(got.EnvNames, []string{"OTHER"}) {
		w.Errorf("the session is %+v", got)
	}
	w.wantTexts(w.recorded()[1:],
		"2 system system exit code 0",
		`3 system system the line ended in "/etc", which is outside of /workspace and /data: `+
			"the next one starts in /workspace",
		`4 system system these variables are not kept, because they are blocked or not valid text: ["DB_PASSWORD" "MINE"]`)
}

func aCommandHasItsOwnVariablesFirst(w *world) {
	w.environment()
	w.acquire(ann)
	w.session(sandbox.CreateSession{ID: "s", Env: map[string]string{"A": "1"}, User: "1001"})
	r := w.exec(sandbox.ExecRequest{
		Session: "s",
		Shell:   "echo $A; pwd; cd deeper",
		Env:     map[string]string{"A": "2"},
		Cwd:     "/data",
	})
	if string(r.Stdout) != "2\n/data\n" {
		w.Errorf("it wrote %q", r.Stdout)
	}
	if x := must(w.Service.GetExec(w.Context(), w.ref(r.ExecID)))(w); x.SessionID != "s" || x.User != "1001" ||
		x.Cwd != "/data" || !slices.Equal(x.Command, []string{"/bin/sh", "-c", "echo $A; pwd; cd deeper"}) {
		w.Errorf("the record is %+v", x)
	}
	if got := w.line("s", "echo $A; pwd"); got != "1\n/data/deeper\n" {
		w.Errorf("the next one wrote %q", got)
	}
	again := sandbox.ExecRequest{ID: "named", Session: "s", Shell: "cd /data; echo once"}
	for range 2 {
		if r := w.exec(again); string(r.Stdout) != "once\n" || r.ExecID != "named" {
			w.Errorf("under its id, the command gives %+v", r)
		}
	}
	again.Session = "other"
	_, err := w.Service.Exec(w.Context(), sandbox.LeaseRef{ID: annsLease}, again)
	w.wantError(err, sandbox.Conflict, sandbox.ReasonOtherSettings, "session")
}

func oneCommandAtATime(w *world) {
	w.environment()
	w.acquire(ann)
	w.session(sandbox.CreateSession{ID: "s"})
	w.session(sandbox.CreateSession{ID: "other"})
	x := w.start(sandbox.ExecRequest{
		Session: "s",
		Command: []string{"sleep", "1h"},
		Timeout: sandbox.Duration(2 * time.Hour),
	})
	_, err := w.Service.Exec(w.Context(), sandbox.LeaseRef{ID: annsLease},
		sandbox.ExecRequest{Session: "s", Command: []string{"echo"}})
	w.wantError(err, sandbox.Conflict, sandbox.ReasonSessionBusy)
	if err != nil && !strings.Contains(err.Error(), x.ID) {
		w.Errorf("it does not name %s: %v", x.ID, err)
	}
	if got := must(w.Service.GetSession(w.Context(), w.sessionRef("s")))(w); got.ExecID != x.ID {
		w.Errorf("%q runs in the session, want %q", got.ExecID, x.ID)
	}
	w.line("other", "echo meanwhile")
	must(w.Service.CancelExec(w.Context(), w.ref(x.ID)))(w)
	w.line("s", "echo after")
}

func aSessionIsRecorded(w *world) {
	w.environment()
	w.acquire(ann)
	w.session(sandbox.CreateSession{ID: "s", Env: map[string]string{"TOKEN": "very secret"}})
	began := w.Now()
	r := w.exec(sandbox.ExecRequest{Session: "s", Shell: "echo hello", Source: sandbox.SourceUser})
	w.exec(sandbox.ExecRequest{Session: "s", Command: []string{"cat"}, Stdin: strings.NewReader("\xff typed")})
	x := w.start(sandbox.ExecRequest{
		Session: "s",
		Command: []string{"sleep", "1h", "it's late"},
		Timeout: sandbox.Duration(2 * time.Hour),
	})
	must(w.Service.CancelExec(w.Context(), w.ref(x.ID)))(w)
	w.wantTexts(w.recorded(),
		"1 input user echo hello", "2 output user hello", "3 system system exit code 0",
		"4 input agent cat", "5 input agent \xff typed", "6 output agent \xff typed", "7 system system exit code 0",
		"8 input agent sleep 1h 'it'\\''s late'", "9 system system cancelled")
	events := must(w.Service.ListSessionEvents(w.Context(), sandbox.SessionEventFilter{SessionRef: w.sessionRef("s")}))(w)
	for i, e := range events {
		if e.At.Before(began) || e.ExecID == "" || i < 3 && e.ExecID != r.ExecID {
			w.Errorf("event %+v", e)
		}
	}
	if got := must(w.Service.GetSession(w.Context(), w.sessionRef("s")))(w); got.LastSequence != 9 ||
		got.RecordedBytes == 0 || got.Full {
		w.Errorf("the session is %+v", got)
	}
}

func aRecordingIsReadInPages(w *world) {
	w.environment()
	w.acquire(ann)
	w.session(sandbox.CreateSession{ID: "s"})
	w.line("s", "echo one")
	w.line("s", "echo two")
	f := sandbox.SessionEventFilter{SessionRef: w.sessionRef("s"), Limit: 4}
	page := must(w.Service.ListSessionEvents(w.Context(), f))(w)
	w.wantTexts(texts(page), "1 input agent echo one", "2 output agent one", "3 system system exit code 0",
		"4 input agent echo two")
	f.After = 4
	w.wantTexts(texts(must(w.Service.ListSessionEvents(w.Context(), f))(w)), "5 output agent two",
		"6 system system exit code 0")
	f.After = 6
	w.wantTexts(texts(must(w.Service.ListSessionEvents(w.Context(), f))(w)))
	for _, after := range []int64{7, -1} {
		f.After = after
		_, err := w.Service.ListSessionEvents(w.Context(), f)
		w.wantError(err, sandbox.Invalid, "")
		w.wantError(w.Service.FollowSessionEvents(w.Context(), f, func(sandbox.SessionEvent) error { return nil }),
			sandbox.Invalid, "")
	}
}

func everyViewerSeesTheSame(w *world) {
	w.environment()
	w.acquire(ann)
	w.session(sandbox.CreateSession{ID: "s"})
	w.line("s", "echo before")
	type seen struct {
		events []string
		err    error
	}
	watch := func(after int64) <-chan seen {
		done := make(chan seen, 1)
		go func() {
			var s seen
			s.err = w.Service.FollowSessionEvents(w.Context(),
				sandbox.SessionEventFilter{SessionRef: w.sessionRef("s"), After: after}, func(e sandbox.SessionEvent) error {
					s.events = append(s.events, texts([]sandbox.SessionEvent{e})...)
					return nil
				})
			done <- s
		}()
		return done
	}
	viewers := []<-chan seen{watch(0), watch(2), watch(0)}
	w.line("s", "echo meanwhile")
	w.exec(sandbox.ExecRequest{Session: "s", Command: []string{"exit", "1", "woe"}})
	must(w.Service.CloseSession(w.Context(), w.sessionRef("s")))(w)
	viewers = append(viewers, watch(0))
	want := w.recorded()
	if len(want) != 9 || want[7] != "8 error agent woe" {
		w.Errorf("the recording is %q", want)
	}
	for i, v := range viewers {
		s := <-v
		if s.err != nil {
			w.Errorf("viewer %d: %v", i, s.err)
		}
		if i == 1 {
			w.wantTexts(s.events, want[2:]...)
		} else {
			w.wantTexts(s.events, want...)
		}
	}
	enough := errors.New("enough")
	if err := w.Service.FollowSessionEvents(w.Context(), sandbox.SessionEventFilter{SessionRef: w.sessionRef("s")},
		func(sandbox.SessionEvent) error { return enough }); !errors.Is(err, enough) {
		w.Errorf("a viewer that has enough gets %v", err)
	}
	w.session(sandbox.CreateSession{ID: "silent"})
	ctx, cancel := context.WithTimeout(w.Context(), 20*time.Millisecond)
	defer cancel()
	if err := w.Service.FollowSessionEvents(ctx, sandbox.SessionEventFilter{SessionRef: w.sessionRef("silent")},
		func(sandbox.SessionEvent) error { return nil }); !errors.Is(err, context.DeadlineExceeded) {
		w.Errorf("a viewer that leaves gets %v", err)
	}
}

func closingASession(w *world) {
	w.environment()
	w.acquire(ann)
	w.session(sandbox.CreateSession{ID: "s", Env: map[string]string{"A": "1"}})
	x := w.start(sandbox.ExecRequest{
		Session: "s",
		Command: []string{"sleep", "1h"},
		Timeout: sandbox.Duration(2 * time.Hour),
	})
	for range 2 {
		if s := must(w.Service.CloseSession(w.Context(), w.sessionRef("s")))(w); s.State != sandbox.SessionClosed ||
			s.ClosedAt.IsZero() || s.ExecID != "" {
			w.Errorf("closed, it is %+v", s)
		}
	}
	w.wantExec(x.ID, sandbox.ExecCancelled)
	_, err := w.Service.Exec(w.Context(), sandbox.LeaseRef{ID: annsLease},
		sandbox.ExecRequest{Session: "s", Command: []string{"echo"}})
	w.wantError(err, sandbox.Conflict, sandbox.ReasonSessionClosed)
	// The id names the closed session.
	_, err = w.Service.CreateSession(w.Context(), sandbox.LeaseRef{ID: annsLease},
		sandbox.CreateSession{ID: "s", Env: map[string]string{"A": "1"}})
	w.wantError(err, sandbox.Conflict, sandbox.ReasonSessionClosed)
	w.wantTexts(w.recorded(), "1 input agent sleep 1h", "2 system system cancelled")
	if open := must(w.Service.ListSessions(w.Context(),
		sandbox.SessionFilter{LeaseID: annsLease, State: sandbox.SessionOpen}))(w); len(open) != 0 {
		w.Errorf("open are %+v", open)
	}
	_, err = w.Service.CloseSession(w.Context(), w.sessionRef("none"))
	w.wantError(err, sandbox.NotFound, sandbox.ReasonSessionNotFound)
}

func aSessionClosesWithItsSandbox(w *world) {
	w.environment()
	w.acquire(ann)
	w.session(sandbox.CreateSession{ID: "s", Env: map[string]string{"A": "1"}})
	w.line("s", "echo one")
	w.Pass(time.Second)
	w.FailKills(true)
	if _, err := w.Service.Release(w.Context(), sandbox.LeaseRef{ID: annsLease}); err == nil {
		w.Error("it was released although its sandbox cannot be destroyed")
	}
	f := sandbox.SessionEventFilter{SessionRef: w.sessionRef("s"), After: 3}
	// Following a closed session returns.
	if err := w.Service.FollowSessionEvents(w.Context(), f, func(sandbox.SessionEvent) error { return nil }); err != nil {
		w.Error(err)
	}
	if s := must(w.Service.GetSession(w.Context(), w.sessionRef("s")))(w); s.State != sandbox.SessionClosed ||
		s.ClosedAt.IsZero() {
		w.Errorf("its lease has ended, and it is %+v", s)
	}
	for state, want := range map[sandbox.SessionState]int{sandbox.SessionOpen: 0, sandbox.SessionClosed: 1} {
		if got := must(w.Service.ListSessions(w.Context(),
			sandbox.SessionFilter{LeaseID: annsLease, State: state}))(w); len(got) != want {
			w.Errorf("%s are %+v", state, got)
		}
	}
	w.FailKills(false)
	w.Advance(time.Hour)
	if s := must(w.Service.GetSession(w.Context(), w.sessionRef("s")))(w); s.State != sandbox.SessionClosed ||
		s.Generation != 1 {
		w.Errorf("after the release, it is %+v", s)
	}
	_, err := w.Service.CreateSession(w.Context(), sandbox.LeaseRef{ID: annsLease}, sandbox.CreateSession{})
	w.wantError(err, sandbox.LeaseEnded, "")
	w.acquire(ann)
	_, err = w.Service.Exec(w.Context(), sandbox.LeaseRef{ID: annsLease},
		sandbox.ExecRequest{Session: "s", Command: []string{"echo"}})
	w.wantError(err, sandbox.Conflict, sandbox.ReasonSessionClosed)
	if s := w.session(sandbox.CreateSession{ID: "s"}); s.Generation != 2 || s.LastSequence != 0 { // ids are per sandbox
		w.Errorf("in the next generation, it is %+v", s)
	}
	old := w.sessionRef("s")
	old.Generation = 1
	w.wantTexts(texts(must(w.Service.ListSessionEvents(w.Context(), sandbox.SessionEventFilter{SessionRef: old}))(w)),
		"1 input agent echo one", "2 output agent one", "3 system system exit code 0")
	if got := w.line("s", "echo [$A]"); got != "[]\n" {
		w.Errorf("the next generation's session has %q", got)
	}
}

func aRecordingIsKept(w *world) {
	w.environment()
	w.acquire(ann)
	w.session(sandbox.CreateSession{ID: "s"})
	w.line("s", "echo one")
	w.Pass(time.Second)
	w.deliver("game.finished")
	w.Advance(2 * time.Hour)
	if got := w.recorded(); w.Running() != 0 || len(got) != 3 {
		w.Errorf("%d sandboxes are there, and the recording is %q", w.Running(), got)
	}
	w.Advance(time.Hour) // usage is counted before it is removed
	w.Purge(time.Hour)
	_, err := w.Service.GetSession(w.Context(), w.sessionRef("s"))
	w.wantError(err, sandbox.NotFound, sandbox.ReasonSessionNotFound)
	_, err = w.Service.ListSessionEvents(w.Context(), sandbox.SessionEventFilter{SessionRef: w.sessionRef("s")})
	w.wantError(err, sandbox.NotFound, sandbox.ReasonSessionNotFound)
}

func sessionsOfOthers(w *world) {
	w.environment()
	w.acquire(ann)
	w.acquire(bob)
	w.session(sandbox.CreateSession{ID: "s"})
	bobs := sandbox.LeaseID(bob, game)
	_, err := w.Service.GetSession(w.Context(), sandbox.SessionRef{LeaseID: bobs, ID: "s"})
	w.wantError(err, sandbox.NotFound, sandbox.ReasonSessionNotFound)
	_, err = w.Service.Exec(w.Context(), sandbox.LeaseRef{ID: bobs},
		sandbox.ExecRequest{Session: "s", Command: []string{"echo"}})
	w.wantError(err, sandbox.NotFound, sandbox.ReasonSessionNotFound)
	_, err = w.Service.ListSessions(w.Context(), sandbox.SessionFilter{LeaseID: sandbox.LeaseID("did:plc:nobody", game)})
	w.wantError(err, sandbox.NotFound, sandbox.ReasonSandboxNotFound)
}

func noShellWithoutASession(w *world) {
	w.environment()
	w.acquire(ann)
	exec := func(req sandbox.ExecRequest) error {
		_, err := w.Service.Exec(w.Context(), sandbox.LeaseRef{ID: annsLease}, req)
		return err
	}
	w.session(sandbox.CreateSession{ID: "s"})
	w.wantError(exec(sandbox.ExecRequest{Shell: "echo"}), sandbox.Invalid, "", "shell")
	w.wantError(exec(sandbox.ExecRequest{Command: []string{"echo"}, Source: sandbox.SourceUser}),
		sandbox.Invalid, "", "source")
	w.wantError(exec(sandbox.ExecRequest{Session: "s", Shell: "echo", Command: []string{"echo"}}),
		sandbox.Invalid, "", "shell")
	w.wantError(exec(sandbox.ExecRequest{Session: "s", Shell: "echo", User: "1001", Source: "nobody"}),
		sandbox.Invalid, "", "user")
	w.wantError(exec(sandbox.ExecRequest{Session: "s", Shell: "echo", Source: "nobody"}), sandbox.Invalid, "", "source")
	w.wantError(exec(sandbox.ExecRequest{Session: "s", Shell: "echo \x00"}), sandbox.Invalid, "", "shell")
	w.wantError(exec(sandbox.ExecRequest{Session: "s"}), sandbox.Invalid, "", "command")
}
