package leasing_test

import (
	"strings"
	"testing"
	"time"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/executor/fake"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// gatewayFindings lists the findings about the environment's gateway, newest first.
func (w *world) gatewayFindings() []sandbox.DriftFinding {
	w.Helper()
	found, err := w.engine.ListDrift(w.Context(), sandbox.DriftFilter{EnvironmentID: game})
	if err != nil {
		w.Fatal(err)
	}
	return found
}

func TestAGatewayThatDiedIsRepairedWithoutACallAndRecorded(t *testing.T) {
	inWorld(t, func(w *world) {
		w.environment(func(p *sandbox.PutEnvironment) { p.Network = sandbox.NetworkRestricted })
		l := w.acquire(ann)
		w.startLoop()
		w.backend.Break(w.gatewayRef(), "gone")
		later(31 * time.Second)
		found := w.gatewayFindings()
		if len(found) != 1 || found[0].Kind != sandbox.DriftStopped ||
			found[0].Observed != "gone" || found[0].Field != "gateway of environment "+game ||
			found[0].ResolvedAt.IsZero() || found[0].Resolution != "the resync repaired it" {
			t.Fatalf("the findings are %+v", found)
		}
		later(time.Minute)
		if n := len(w.gatewayFindings()); n != 1 {
			t.Errorf("an intact gateway has %d findings", n)
		}
		w.want(w.lease(l.ID), sandbox.LeaseActive, "")
	})
}

func TestAGatewayThatCannotBeRepairedIsAFindingUntilItWorks(t *testing.T) {
	inWorld(t, func(w *world) {
		w.environment(func(p *sandbox.PutEnvironment) { p.Network = sandbox.NetworkRestricted })
		l := w.acquire(ann)
		w.startLoop()
		w.backend.Break(w.gatewayRef(), "stopped with exit code 1")
		w.backend.Fail(fake.OpRepair, sandbox.Errorf(sandbox.Failed, "no room for it"))
		later(70 * time.Second)
		found := w.gatewayFindings()
		if len(found) != 1 || !found[0].ResolvedAt.IsZero() || found[0].Observed != "stopped with exit code 1" ||
			!strings.Contains(found[0].Resolution, "no room for it") {
			t.Fatalf("the findings are %+v", found)
		}
		w.backend.Break(w.gatewayRef(), "") // repaired from outside
		w.backend.Fail(fake.OpRepair, nil)
		later(31 * time.Second)
		if found = w.gatewayFindings(); len(found) != 1 || found[0].Resolution != "it works again" ||
			found[0].ResolvedAt.IsZero() {
			t.Errorf("the findings are %+v", found)
		}
		w.want(w.lease(l.ID), sandbox.LeaseActive, "")
	})
}

func TestOnlyGatewaysInUseAreRepaired(t *testing.T) {
	inWorld(t, func(w *world) {
		w.environment(func(p *sandbox.PutEnvironment) { p.Network = sandbox.NetworkRestricted })
		w.startLoop()
		w.backend.Break(w.gatewayRef(), "gone")
		later(time.Minute)
		if found := w.gatewayFindings(); len(found) > 0 {
			t.Errorf("no sandbox uses the gateway, and the findings are %+v", found)
		}
	})
}
