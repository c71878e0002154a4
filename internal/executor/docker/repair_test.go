package docker_test

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/dockerapi"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/driver"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/executor/docker"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// leased adds the restricted environment to a lease service, and leases a sandbox of it.
func (r *restricted) leased(
	t *testing.T,
) (resync func() error, findings func() []sandbox.DriftFinding, h driver.Handle) {
	t.Helper()
	e, end := r.engineOn(t, filepath.Join(t.TempDir(), "ledger.db"))
	t.Cleanup(end)
	env := r.environment()
	env.Type, env.Network, env.Egress, env.Resources = sandbox.TypeCustom, sandbox.NetworkRestricted, &r.egress,
		sandbox.DefaultResources
	_, err := e.PutEnvironment(t.Context(),
		sandbox.PutEnvironment{ID: r.ref.EnvironmentID, Owner: "test", EnvironmentSpec: env})
	must(t, err)
	a, err := e.Acquire(t.Context(),
		sandbox.Acquire{AgentDID: "did:plc:ann", EnvironmentID: r.ref.EnvironmentID, Owner: "test"})
	must(t, err)
	h = r.world.spec().Handle
	h.SandboxID = a.Lease.SandboxID
	return func() error { return e.Resync(t.Context(), sandbox.Docker) },
		func() []sandbox.DriftFinding {
			found, err := e.ListDrift(t.Context(), sandbox.DriftFilter{})
			must(t, err)
			return found
		}, h
}

func TestAResyncRepairsAGatewayThatDied(t *testing.T) {
	t.Parallel()
	r := newRestricted(t)
	resync, findings, h := r.leased(t)
	r.wantOut(t, h, "at first", true)
	grace := 0
	for i, row := range []struct {
		observed string
		kill     func() error
	}{
		{"stopped", func() error {
			return r.api.ContainerStop(t.Context(), r.gateway(), dockerapi.StopOptions{Timeout: &grace})
		}},
		{"gone", func() error {
			return r.api.ContainerRemove(t.Context(), r.gateway(), dockerapi.ContainerRemoveOptions{Force: true})
		}},
		{"paused", func() error { return r.api.ContainerPause(t.Context(), r.gateway()) }},
	} {
		must(t, row.kill())
		r.wantOut(t, h, "while its gateway is "+row.observed, false)
		must(t, resync())
		r.wantOut(t, h, "after the resync of a gateway that was "+row.observed, true)
		found := findings()
		if len(found) != i+1 || !strings.HasPrefix(found[0].Observed, row.observed) || found[0].ResolvedAt.IsZero() ||
			found[0].EnvironmentID != r.ref.EnvironmentID {
			t.Errorf("after it was %s the findings are %+v", row.observed, found)
		}
	}
	must(t, resync())
	if n := len(findings()); n != 3 {
		t.Errorf("a gateway that works made %d findings", n)
	}
}

// Another release has another program or, as here, other settings. Both change the image.
func TestAGatewayOfAnotherReleaseIsReplacedOnceAndForgetsNothing(t *testing.T) {
	t.Parallel()
	r := newRestricted(t)
	h := r.spawn(t)
	id := func() string {
		c, err := r.api.ContainerInspect(t.Context(), r.gateway())
		must(t, err)
		return c.ID
	}
	first := id()
	r.config.Gateway.DNS = []string{"192.0.2.53"}
	newer, err := docker.New(r.config)
	must(t, err)
	t.Cleanup(func() { must(t, newer.Close()) })
	spec := r.environment()
	spec.Network, spec.Egress = sandbox.NetworkRestricted, &r.egress

	// A working gateway is kept, so that reconcilers of two releases do not replace it in turn.
	for _, x := range []*docker.Executor{newer, r.x} {
		if found, err := x.Repair(t.Context(), r.ref, spec); found != "" || err != nil {
			t.Errorf("a resync found it %q, %v", found, err)
		}
	}
	if id() != first {
		t.Error("a resync has replaced a gateway that works")
	}
	must(t, newer.Provision(t.Context(), r.ref, spec))
	second := id()
	if second == first {
		t.Error("the environment was put, and its gateway is the old one")
	}
	r.wantOut(t, h, "after it was replaced", true)
	must(t, newer.Provision(t.Context(), r.ref, spec))
	if id() != second {
		t.Error("it was replaced again")
	}
}
