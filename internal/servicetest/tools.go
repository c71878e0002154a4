package servicetest

import (
	"strings"
	"time"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/executor/fake"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

var toolTests = []test{
	{"AnImageThatLacksAToolFailsTheLease", imageLacksTool},
	{"UnknownToolsAreNamed", unknownToolsAreNamed},
}

func imageLacksTool(w *world) {
	tools := func(names ...string) func(p *sandbox.PutEnvironment) {
		return func(p *sandbox.PutEnvironment) { p.BuiltinTools = names }
	}
	w.environment(tools("git", fake.Lacks))
	_, err := w.Service.Acquire(w.Context(), sandbox.Acquire{AgentDID: ann, EnvironmentID: game, Owner: owner})
	w.wantError(err, sandbox.Failed, sandbox.ReasonToolMissing)
	if text := "image player lacks the program opencode of opencode;"; err == nil || !strings.Contains(err.Error(), text) {
		w.Errorf("the error does not say %q: %v", text, err)
	}
	w.Advance(time.Second)
	l := w.wantStatus(sandbox.SandboxDeleted, "", sandbox.ReasonToolMissing)
	if w.wantLease(l, 1, sandbox.LeaseDestroyed, sandbox.EndedByFailed); w.Running() != 0 {
		w.Errorf("%d sandboxes are left", w.Running())
	}
	w.environment(tools("git"))
	if l := w.acquire(ann); l.Generation != 2 || l.Status != sandbox.LeaseActive {
		w.Errorf("with all tools the lease is %+v", l)
	}
}

func unknownToolsAreNamed(w *world) {
	p := sandbox.PutEnvironment{ID: game, Owner: owner, EnvironmentSpec: sandbox.EnvironmentSpec{Image: "player"}}
	p.BuiltinTools = []string{"git", "apt", "git"}
	_, err := w.Service.PutEnvironment(w.Context(), p)
	w.wantError(err, sandbox.Invalid, "", "builtin_tools[1]", "builtin_tools[2]")
}
