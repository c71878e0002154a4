package leasing_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/executor/fake"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

func runOf(args ...string) sandbox.RunRequest {
	return sandbox.RunRequest{
		EnvironmentID: game,
		AgentDID:      ann,
		Owner:         "test",
		ExecRequest:   sandbox.ExecRequest{Command: args},
	}
}

// panics is a writer that panics.
type panics struct{}

func (panics) Write([]byte) (int, error) { panic("the writer is broken") }

func TestARunDoesNotExamineItsDeployment(t *testing.T) {
	inWorld(t, func(w *world) {
		w.environment()
		w.backend.Fault(fake.OpDiffer, func(context.Context) error {
			t.Error("the run examines the deployment of its environment")
			return nil
		})
		if _, err := w.engine.Run(w.Context(), runOf("true")); err != nil {
			w.Fatal(err)
		}
	})
}

func TestARunThatPanicsLeavesNothingBehind(t *testing.T) {
	inWorld(t, func(w *world) {
		w.environment()
		func() {
			defer func() {
				if recover() == nil {
					t.Error("the panic was hidden")
				}
			}()
			r := runOf("echo", "hello")
			r.Stdout = panics{}
			_, _ = w.engine.Run(w.Context(), r) // it does not return
		}()
		if l := w.lease(annLease); len(w.backend.Sandboxes()) != 0 || l.Status != sandbox.LeaseDestroyed {
			t.Errorf("%d sandboxes are left, and the lease is %s", len(w.backend.Sandboxes()), l.Status)
		}
	})
}

func TestARunWhoseSandboxDoesNotStartLeavesNothingBehind(t *testing.T) {
	inWorld(t, func(w *world) {
		w.environment()
		w.backend.Fail(fake.OpSpawn, sandbox.Errorf(sandbox.Failed, "exec format error"))
		_, err := w.engine.Run(w.Context(), runOf("echo"))
		if sandbox.CodeOf(err) != sandbox.Failed {
			t.Errorf("the run ended with %v", err)
		}
		w.want(w.lease(annLease), sandbox.LeaseDestroyed, sandbox.EndedByFailed)
	})
}

// TestARunWhoseSandboxCannotBeDestroyedHasItsResult: a repeated run would not help.
func TestARunWhoseSandboxCannotBeDestroyedHasItsResult(t *testing.T) {
	inWorld(t, func(w *world) {
		w.startLoop()
		w.environment()
		w.backend.Fail(fake.OpKill, sandbox.Errorf(sandbox.Unavailable, "the engine is away"))
		r, err := w.engine.Run(w.Context(), runOf("echo", "done"))
		if err != nil || string(r.Stdout) != "done\n" || r.Lease.Status != sandbox.LeaseExpired {
			t.Errorf("the run gave %q, lease %s: %v", r.Stdout, r.Lease.Status, err)
		}
		w.backend.Fail(fake.OpKill, nil)
		later(time.Minute)
		w.want(w.lease(annLease), sandbox.LeaseDestroyed, sandbox.EndedByRelease)
	})
}

// TestARunHasNoMoreThanItsCallerMay: only callers who may change the environment may exceed it, and none may exceed a
// tenant's ceiling.
func TestARunHasNoMoreThanItsCallerMay(t *testing.T) {
	inWorld(t, func(w *world) {
		w.environment(func(p *sandbox.PutEnvironment) {
			p.Resources = sandbox.Resources{MemoryMB: 4096, CPUMillis: 2000}
		})
		tenant := &sandbox.Tenant{Name: "team", Environments: []string{"*"}}
		large := sandbox.SandboxChoice{Resources: sandbox.Resources{MemoryMB: 8192}}
		for _, row := range []struct {
			choice    sandbox.SandboxChoice
			mayExceed bool
			tenant    *sandbox.Tenant
			want      sandbox.Reason
		}{
			{sandbox.SandboxChoice{Image: "tools:2"}, false, nil, sandbox.ReasonScopeMissing},
			{large, false, nil, sandbox.ReasonScopeMissing},
			{large, false, tenant, sandbox.ReasonScopeMissing},
			{large, true, tenant, sandbox.ReasonCeilingExceeded},
			{large, true, nil, ""},
			{sandbox.SandboxChoice{Image: "tools:2"}, true, tenant, ""},
			{sandbox.SandboxChoice{Resources: sandbox.Resources{MemoryMB: 1024, CPUMillis: 500}}, false, tenant, ""},
		} {
			r := runOf("true")
			r.Choice, r.MayExceed, r.Tenant = row.choice, row.mayExceed, row.tenant
			res, err := w.engine.Run(w.Context(), r)
			if sandbox.ReasonOf(err) != row.want || row.want != "" && res.Lease.ID != "" {
				t.Errorf("%+v of %v: %v, %+v", row.choice, row.tenant, err, res.Lease)
			}
		}
	})
}

func TestARunOnCloudflareHasItsEnvironmentsSandbox(t *testing.T) {
	_, err := sandbox.SandboxChoice{Image: "tools:2", Network: sandbox.NetworkNone}.Apply(
		sandbox.EnvironmentSpec{Backend: sandbox.Cloudflare}.WithDefaults(), true, nil)
	e, ok := errors.AsType[*sandbox.Error](err)
	if !ok || e.Code != sandbox.Invalid || len(e.Fields) != 2 || e.Fields[0].Name != "image" || e.Fields[1].Name != "network" {
		t.Errorf("%+v", err)
	}
}

// TestARunWhoseCallsCannotBeReadHasItsResult: the ledger gets the model calls later.
func TestARunWhoseCallsCannotBeReadHasItsResult(t *testing.T) {
	inWorld(t, func(w *world) {
		w.environment(withModel)
		w.backend.Fail(fake.OpLLMCalls, sandbox.Errorf(sandbox.Unavailable, "the gateway is away"))
		r, err := w.engine.Run(w.Context(), runOf("echo", "done"))
		if err != nil || string(r.Stdout) != "done\n" || r.Lease.Status != sandbox.LeaseDestroyed {
			t.Errorf("the run gave %q, lease %s: %v", r.Stdout, r.Lease.Status, err)
		}
	})
}
