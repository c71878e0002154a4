package servicetest

import (
	"slices"
	"strings"
	"time"

	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

var postStartTests = []test{
	{"PostStartCommandsAreCommandsOfTheirSandbox", postStartCommandsAreCommands},
	{"APostStartCommandThatFailsSaysWhichAndHow", postStartFails},
	{"PostStartCommandsThatAreWrongAreNamed", postStartNamesWrongFields},
}

func postStartCommandsAreCommands(w *world) {
	env := w.environment(func(p *sandbox.PutEnvironment) {
		p.PostStart = []sandbox.PostStart{
			{Command: []string{"echo", "first"}, Env: map[string]string{"LEVEL": "1"}, User: "1001"},
			{Command: []string{"echo", "second"}},
		}
	})
	if got := env.PostStart; len(got) != 2 || got[0].Env["LEVEL"] != "1" || got[1].Timeout != sandbox.DefaultExecTimeout {
		w.Errorf("the environment shows %+v", got)
	}
	l := w.acquire(ann)
	list := must(w.Service.ListExecs(w.Context(), sandbox.ExecFilter{LeaseID: annsLease}))(w)
	if len(list) != 2 {
		w.Fatalf("%d commands were run", len(list))
	}
	slices.Reverse(list) // the latest is first
	for n, text := range []string{"first\n", "second\n"} {
		x := list[n]
		if x.ID != sandbox.PostStartID(l.SandboxID, n) || x.State != sandbox.ExecFinished || !exited(x.ExitCode, 0) ||
			x.FinishedAt.After(l.ReadyAt) {
			w.Errorf("command %d is %+v, of a sandbox that was ready at %v", n, x, l.ReadyAt)
		}
		if got := w.output(sandbox.OutputRequest{ExecRef: w.ref(x.ID), Stream: sandbox.Stdout}); got != text {
			w.Errorf("command %d wrote %q", n, got)
		}
	}
	if x := list[0]; x.User != "1001" || !slices.Equal(x.EnvNames, []string{"LEVEL"}) {
		w.Errorf("the first command was run as %+v", x)
	}
}

func postStartFails(w *world) {
	w.environment(func(p *sandbox.PutEnvironment) {
		p.PostStart = []sandbox.PostStart{{Command: []string{"exit", "3", "no", "such", "module"}}}
	})
	_, err := w.Service.Acquire(w.Context(), sandbox.Acquire{AgentDID: ann, EnvironmentID: game, Owner: owner})
	w.wantError(err, sandbox.Failed, sandbox.ReasonPostStartFailed)
	for _, text := range []string{`post_start[0] "exit" ended with exit code 3`, "no such module"} {
		if err == nil || !strings.Contains(err.Error(), text) {
			w.Errorf("the error does not say %q: %v", text, err)
		}
	}
	w.Advance(time.Second)
	l := w.wantStatus(sandbox.SandboxDeleted, "", sandbox.ReasonPostStartFailed)
	if w.wantLease(l, 1, sandbox.LeaseDestroyed, sandbox.EndedByFailed); w.Running() != 0 {
		w.Errorf("%d sandboxes are left", w.Running())
	}
	if got := w.output(sandbox.OutputRequest{
		ExecRef: w.ref(sandbox.PostStartID(l.SandboxID, 0)),
		Stream:  sandbox.Stderr,
	}); got != "no such module" {
		w.Errorf("the command's output is %q", got)
	}
}

func postStartNamesWrongFields(w *world) {
	p := sandbox.PutEnvironment{ID: game, Owner: owner, EnvironmentSpec: sandbox.EnvironmentSpec{Image: "player"}}
	p.EnvBlocked = []string{"TOKEN"}
	p.PostStart = []sandbox.PostStart{
		{},
		{
			Command: []string{"echo"},
			Env:     map[string]string{"TOKEN": "", "AGENT_DID": ""},
			User:    "root",
			Timeout: sandbox.Duration(2 * time.Hour),
		},
		{
			Command: []string{"echo", strings.Repeat("x", sandbox.MaxPostStartBytes)},
			Timeout: sandbox.Duration(time.Millisecond),
		},
	}
	_, err := w.Service.PutEnvironment(w.Context(), p)
	w.wantError(err, sandbox.Invalid, "", "post_start[0].command", "post_start[1].env.TOKEN",
		"post_start[1].env.AGENT_DID", "post_start[1].user", "post_start[1].timeout", "post_start[2].timeout", "post_start")
	p.PostStart = slices.Repeat([]sandbox.PostStart{{Command: []string{"echo"}}}, sandbox.MaxPostStart+1)
	_, err = w.Service.PutEnvironment(w.Context(), p)
	w.wantError(err, sandbox.Invalid, "", "post_start")
}
