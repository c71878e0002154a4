package servicetest

import (
	"context"
	"io"
	"net/url"
	"strings"
	"time"

	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// The processes run on the in-memory backend: say <duration> <words>, crash <duration> <code> <words> and listen <port>
// <duration>.
var processTests = []test{
	{"AProcessIsStartedAndListed", aProcessIsStarted},
	{"AProcessNamesItself", aProcessNamesItself},
	{"ProcessesAreChecked", processesAreChecked},
	{"ALineOfALogIsWaitedFor", aLineIsWaitedFor},
	{"APortIsWaitedFor", aPortIsWaitedFor},
	{"AnEndIsWaitedFor", anEndIsWaitedFor},
	{"AWaitEnds", aWaitEnds},
	{"ALogIsReadFromAnyOffset", aLogIsRead},
	{"AProcessIsKilled", aProcessIsKilled},
	{"DeclaredProcessesRunOnceASandboxIsReady", declaredProcessesRun},
	{"ProcessesEndWithTheirLease", processesEndWithTheirLease},
	{"ProcessesOfOthersAreNotShown", processesOfOthers},
	{"AgentsAreListed", agentsAreListed},
}

func (w *world) process(name string) sandbox.ProcessRef {
	return sandbox.ProcessRef{LeaseRef: sandbox.LeaseRef{ID: annsLease}, Name: name}
}

func (w *world) startProcess(name string, command ...string) sandbox.Process {
	w.Helper()
	return must(w.Service.StartProcess(w.Context(), sandbox.LeaseRef{ID: annsLease},
		sandbox.ProcessSpec{Name: name, Command: command}))(w)
}

// untilProcess waits for a process to meet a condition.
func (w *world) untilProcess(wait sandbox.ProcessWait) sandbox.ProcessWaited {
	w.Helper()
	return must(w.Service.WaitProcess(w.Context(), wait))(w)
}

func (w *world) log(l sandbox.LogRequest) (string, int64) {
	w.Helper()
	log := must(w.Service.ReadProcess(w.Context(), l))(w)
	b, err := io.ReadAll(log)
	if err != nil {
		w.Fatal(err)
	}
	if err := log.Close(); err != nil {
		w.Error(err)
	}
	return string(b), log.Offset
}

func aProcessIsStarted(w *world) {
	w.environment()
	l := w.acquire(ann)
	spec := sandbox.ProcessSpec{
		Name:    "relay",
		Command: []string{"say", "1h", "ready"},
		Env:     map[string]string{"TOPIC": "games"},
		Cwd:     "maps",
		User:    "1001",
	}
	p := must(w.Service.StartProcess(w.Context(), sandbox.LeaseRef{ID: annsLease, Generation: 1}, spec))(w)
	if p.State != sandbox.ProcessRunning || p.Starts != 1 || p.Cwd != "/workspace/maps" || p.User != "1001" ||
		len(p.EnvNames) != 1 || p.EnvNames[0] != "TOPIC" || p.Restart != sandbox.RestartNo || p.Declared ||
		p.SandboxID != l.SandboxID || p.Generation != 1 || p.StartedAt.IsZero() {
		w.Errorf("it is %+v", p)
	}
	w.startProcess("alpha", "say", "1h", "first")
	list := must(w.Service.ListProcesses(w.Context(), annsLease))(w)
	if len(list) != 2 || list[0].Name != "alpha" || list[1].Name != "relay" {
		w.Errorf("the list is %+v", list)
	}
	if got := must(w.Service.GetProcess(w.Context(), w.process("relay")))(w); got.Command[1] != "1h" ||
		got.State != sandbox.ProcessRunning {
		w.Errorf("it is %+v", got)
	}
	w.waitForEvent(sandbox.EventProcessStarted)
	_, err := w.Service.GetProcess(w.Context(), w.process("nobody"))
	w.wantError(err, sandbox.NotFound, sandbox.ReasonProcessNotFound)
	_, err = w.Service.StartProcess(w.Context(), sandbox.LeaseRef{ID: annsLease, Generation: 2}, spec)
	w.wantError(err, sandbox.Conflict, sandbox.ReasonOtherGeneration)
}

func aProcessNamesItself(w *world) {
	w.environment()
	w.acquire(ann)
	w.startProcess("relay", "say", "1h", "ready")
	if again := w.startProcess("relay", "say", "1h", "ready"); again.Starts != 1 {
		w.Errorf("the same process again is %+v", again)
	}
	_, err := w.Service.StartProcess(w.Context(), sandbox.LeaseRef{ID: annsLease},
		sandbox.ProcessSpec{Name: "relay", Command: []string{"echo"}, Restart: sandbox.RestartAlways})
	w.wantError(err, sandbox.Conflict, sandbox.ReasonOtherSettings, "command", "restart")
	must(w.Service.KillProcess(w.Context(), w.process("relay")))(w)
	if next := w.startProcess("relay", "echo", "other"); next.Command[0] != "echo" || next.Starts != 1 {
		w.Errorf("the next process of the name is %+v", next)
	}
}

func processesAreChecked(w *world) {
	w.environment(func(p *sandbox.PutEnvironment) { p.EnvBlocked = []string{"MY_TOKEN"} })
	w.acquire(ann)
	_, err := w.Service.StartProcess(w.Context(), sandbox.LeaseRef{ID: annsLease}, sandbox.ProcessSpec{
		Name:    "Relay",
		Command: []string{""},
		Cwd:     "/etc",
		Restart: "often",
		Env:     map[string]string{"AGENT_DID": "x"},
	})
	w.wantError(err, sandbox.Invalid, "", "name", "command", "cwd", "restart", "env.AGENT_DID")
	_, err = w.Service.StartProcess(w.Context(), sandbox.LeaseRef{ID: annsLease},
		sandbox.ProcessSpec{Name: "relay", Command: []string{"echo"}, Env: map[string]string{"MY_TOKEN": "x"}})
	w.wantError(err, sandbox.Invalid, "", "env.MY_TOKEN")
	for field, wait := range map[string]sandbox.ProcessWait{
		"log": {}, "exit": {Log: "a", Exit: true}, "port": {Log: "a", Port: 80},
	} {
		wait.ProcessRef = w.process("relay")
		_, err = w.Service.WaitProcess(w.Context(), wait)
		w.wantError(err, sandbox.Invalid, "", field)
	}
	_, err = w.Service.WaitProcess(w.Context(),
		sandbox.ProcessWait{ProcessRef: w.process("relay"), Log: "(", Timeout: sandbox.Duration(2 * time.Hour)})
	w.wantError(err, sandbox.Invalid, "", "log", "timeout")
	_, err = w.Service.WaitProcess(w.Context(), sandbox.ProcessWait{ProcessRef: w.process("relay"), Port: 70000})
	w.wantError(err, sandbox.Invalid, "", "port")
	_, err = w.Service.PutEnvironment(w.Context(), sandbox.PutEnvironment{
		ID: "other",
		EnvironmentSpec: sandbox.EnvironmentSpec{Image: "player", Network: sandbox.NetworkNone,
			Processes: []sandbox.ProcessSpec{{Name: "a", Command: []string{"echo"}}, {Name: "a"}}},
	})
	w.wantError(err, sandbox.Invalid, "", "processes[1].name", "processes[1].command")
}

func aLineIsWaitedFor(w *world) {
	w.environment()
	w.acquire(ann)
	w.startProcess("relay", "say", "1h", "subscribed to games")
	for range 2 { // also if the line was written before
		got := w.untilProcess(sandbox.ProcessWait{ProcessRef: w.process("relay"), Log: "^subscribed to (games|turns)$"})
		if got.Line != "subscribed to games" || got.Offset != 20 || got.State != sandbox.ProcessRunning {
			w.Errorf("the wait returned %+v", got)
		}
	}
	w.startProcess("short", "echo", "done")
	if got := w.untilProcess(sandbox.ProcessWait{ProcessRef: w.process("short"), Log: "done"}); got.Line != "done" {
		w.Errorf("the wait for an ended process returned %+v", got)
	}
}

func aPortIsWaitedFor(w *world) {
	w.environment()
	w.acquire(ann)
	w.startProcess("server", "listen", "8080", "50ms")
	if got := w.untilProcess(sandbox.ProcessWait{
		ProcessRef: w.process("server"),
		Port:       8080,
	}); got.State != sandbox.ProcessRunning {
		w.Errorf("the wait returned %+v", got)
	}
}

func anEndIsWaitedFor(w *world) {
	w.environment()
	l := w.acquire(ann)
	w.startProcess("short", "crash", "50ms", "3", "no use")
	got := w.untilProcess(sandbox.ProcessWait{ProcessRef: w.process("short"), Exit: true})
	if got.State != sandbox.ProcessExited || !exited(got.ExitCode, 3) || got.ExitedAt.IsZero() ||
		got.Starts != 1 || got.Error != "" {
		w.Errorf("it ended as %+v", got)
	}
	events := must(w.Service.ListEvents(w.Context(), sandbox.EventFilter{SandboxID: l.SandboxID, Type: "process.*"}))(w)
	if len(events) != 2 || events[1].Type != sandbox.EventProcessExited ||
		string(events[1].Data) != `{"exit_code":3,"name":"short","start":1}` {
		w.Errorf("the events are %+v", events)
	}
}

func aWaitEnds(w *world) {
	w.environment()
	w.acquire(ann)
	w.startProcess("relay", "say", "1h", "ready")
	for _, wait := range []sandbox.ProcessWait{{Log: "never"}, {Port: 9}, {Exit: true}} {
		wait.ProcessRef, wait.Timeout = w.process("relay"), sandbox.Duration(100*time.Millisecond)
		_, err := w.Service.WaitProcess(w.Context(), wait)
		w.wantError(err, sandbox.Timeout, "")
	}
	w.startProcess("short", "crash", "50ms", "3", "no use")
	for _, wait := range []sandbox.ProcessWait{{Log: "ready"}, {Port: 9}} {
		wait.ProcessRef = w.process("short")
		_, err := w.Service.WaitProcess(w.Context(), wait)
		w.wantError(err, sandbox.Conflict, sandbox.ReasonProcessEnded)
	}
	_, err := w.Service.WaitProcess(w.Context(), sandbox.ProcessWait{ProcessRef: w.process("nobody"), Exit: true})
	w.wantError(err, sandbox.NotFound, sandbox.ReasonProcessNotFound)
}

func aLogIsRead(w *world) {
	w.environment()
	w.acquire(ann)
	w.startProcess("relay", "say", "1h", "ready")
	w.untilProcess(sandbox.ProcessWait{ProcessRef: w.process("relay"), Log: "ready"})
	for offset, want := range map[int64]string{0: "ready\n", 2: "ady\n", 6: "", 99: ""} {
		if got, at := w.log(sandbox.LogRequest{ProcessRef: w.process("relay"), Offset: offset}); got != want ||
			at != min(offset, 6) {
			w.Errorf("from %d: %q from %d", offset, got, at)
		}
	}
	ctx, cancel := context.WithCancel(w.Context())
	log := must(w.Service.ReadProcess(ctx, sandbox.LogRequest{ProcessRef: w.process("relay"), Follow: true}))(w)
	first := make([]byte, 6)
	if _, err := io.ReadFull(log, first); err != nil || string(first) != "ready\n" {
		w.Errorf("the log begins with %q: %v", first, err)
	}
	cancel() // a reader that leaves
	_ = log.Close()
	w.startProcess("short", "say", "50ms", "last words")
	if got, _ := w.log(sandbox.LogRequest{ProcessRef: w.process("short"), Follow: true}); got != "last words\n" {
		w.Errorf("the log followed to its end is %q", got)
	}
	_, err := w.Service.ReadProcess(w.Context(), sandbox.LogRequest{ProcessRef: w.process("relay"), Offset: -1})
	w.wantError(err, sandbox.Invalid, "", "offset")
	_, err = w.Service.ReadProcess(w.Context(), sandbox.LogRequest{ProcessRef: w.process("nobody")})
	w.wantError(err, sandbox.NotFound, sandbox.ReasonProcessNotFound)
	_, err = w.Service.ReadCompanion(w.Context(),
		sandbox.CompanionLogRequest{LeaseRef: sandbox.LeaseRef{ID: annsLease}, Name: "db"})
	w.wantError(err, sandbox.NotFound, sandbox.ReasonCompanionNotFound)
}

func aProcessIsKilled(w *world) {
	w.environment()
	w.acquire(ann)
	p := sandbox.ProcessSpec{Name: "relay", Command: []string{"say", "1h", "ready"}, Restart: sandbox.RestartAlways}
	must(w.Service.StartProcess(w.Context(), sandbox.LeaseRef{ID: annsLease}, p))(w)
	for range 2 {
		if got := must(w.Service.KillProcess(w.Context(), w.process("relay")))(w); got.State != sandbox.ProcessKilled ||
			got.Starts != 1 || got.Error != "" {
			w.Errorf("it is %+v", got)
		}
	}
	w.waitForEvent(sandbox.EventProcessKilled)
	if got, _ := w.log(sandbox.LogRequest{ProcessRef: w.process("relay")}); got != "ready\n" {
		w.Errorf("its log is %q", got)
	}
	_, err := w.Service.KillProcess(w.Context(), w.process("nobody"))
	w.wantError(err, sandbox.NotFound, sandbox.ReasonProcessNotFound)
}

func declaredProcessesRun(w *world) {
	w.environment(func(p *sandbox.PutEnvironment) {
		p.Processes = []sandbox.ProcessSpec{
			{Name: "relay", Command: []string{"say", "1h", "ready"}, Env: map[string]string{"A": "1"}},
		}
	})
	w.acquire(ann)
	got := w.untilProcess(sandbox.ProcessWait{ProcessRef: w.process("relay"), Log: "ready"})
	if !got.Declared || got.State != sandbox.ProcessRunning || got.Starts != 1 {
		w.Errorf("it is %+v", got)
	}
}

func processesEndWithTheirLease(w *world) {
	w.environment()
	w.acquire(ann)
	w.startProcess("relay", "say", "1h", "ready")
	must(w.Service.Release(w.Context(), sandbox.LeaseRef{ID: annsLease}))(w)
	if got := must(w.Service.GetProcess(w.Context(), w.process("relay")))(w); got.State != sandbox.ProcessStopped ||
		got.ExitedAt.IsZero() || got.Error == "" {
		w.Errorf("it is %+v", got)
	}
	_, err := w.Service.StartProcess(w.Context(), sandbox.LeaseRef{ID: annsLease},
		sandbox.ProcessSpec{Name: "relay", Command: []string{"echo"}})
	w.wantError(err, sandbox.LeaseEnded, "")
	w.Advance(2 * time.Hour)
	w.Purge(time.Hour)
	_, err = w.Service.GetProcess(w.Context(), w.process("relay"))
	w.wantError(err, sandbox.NotFound, sandbox.ReasonProcessNotFound)
}

func processesOfOthers(w *world) {
	w.environment()
	w.acquire(ann)
	w.acquire(bob)
	w.startProcess("relay", "say", "1h", "ready")
	bobs := sandbox.ProcessRef{LeaseRef: sandbox.LeaseRef{ID: sandbox.LeaseID(bob, game)}, Name: "relay"}
	_, err := w.Service.GetProcess(w.Context(), bobs)
	w.wantError(err, sandbox.NotFound, sandbox.ReasonProcessNotFound)
	if list := must(w.Service.ListProcesses(w.Context(), bobs.LeaseRef.ID))(w); len(list) != 0 {
		w.Errorf("another lease has %+v", list)
	}
}

func agentsAreListed(w *world) {
	w.environment()
	l := w.acquire(ann)
	w.startProcess("plain", "say", "1h", "no agent")
	spec := sandbox.ProcessSpec{
		Name: "chat", Command: []string{"listen", "8080", "1ms"},
		Endpoint: &sandbox.Endpoint{Port: 8080, Description: "Talks."},
	}
	p := must(w.Service.StartProcess(w.Context(), sandbox.LeaseRef{ID: annsLease}, spec))(w)
	if p.Endpoint == nil || *p.Endpoint != *spec.Endpoint {
		w.Errorf("it is %+v", p)
	}
	spec.Endpoint = &sandbox.Endpoint{Port: 8081, Description: "Talks."}
	_, err := w.Service.StartProcess(w.Context(), sandbox.LeaseRef{ID: annsLease}, spec)
	w.wantError(err, sandbox.Conflict, sandbox.ReasonOtherSettings, "endpoint")
	spec.Endpoint = &sandbox.Endpoint{Port: 65536, Description: strings.Repeat("x", 201)}
	_, err = w.Service.StartProcess(w.Context(), sandbox.LeaseRef{ID: annsLease}, spec)
	w.wantError(err, sandbox.Invalid, "", "endpoint.port", "endpoint.description")

	want := sandbox.Agent{
		ID: annsLease + "/chat", Name: "chat", Description: "Talks.", LeaseID: annsLease, EnvironmentID: l.EnvironmentID,
		AgentDID: ann, Generation: 1, Path: "/v1/leases/" + url.PathEscape(annsLease) + "/agents/chat/", Port: 8080,
		State: sandbox.AgentRunning, StartedAt: p.StartedAt,
	}
	for _, f := range []sandbox.AgentFilter{
		{}, {EnvironmentID: l.EnvironmentID, LeaseID: annsLease, State: sandbox.AgentRunning, Limit: 1},
	} {
		list := must(w.Service.Agents(w.Context(), f))(w)
		if len(list) != 1 || list[0] != want {
			w.Errorf("with %+v, the list is %+v, want %+v", f, list, want)
		}
	}
	if list := must(w.Service.Agents(w.Context(), sandbox.AgentFilter{After: want.ID}))(w); len(list) != 0 {
		w.Errorf("after the last, the list is %+v", list)
	}
	_, err = w.Service.Agents(w.Context(), sandbox.AgentFilter{State: "tired"})
	w.wantError(err, sandbox.Invalid, "", "state")
}
