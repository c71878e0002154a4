package leasing_test

import (
	"testing"
	"time"

	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

func TestASandboxIsToldWhatItsEnvironmentLetsOut(t *testing.T) {
	inWorld(t, func(w *world) {
		rules := sandbox.Egress{
			Allow:        []sandbox.EgressRule{{Host: "model.internal", Ports: []int{8080}}},
			PrivateCIDRs: []string{"10.20.0.0/16"},
		}
		for _, row := range []struct {
			network sandbox.NetworkMode
			egress  *sandbox.Egress
			want    sandbox.Egress
		}{
			{sandbox.NetworkNone, nil, sandbox.Egress{}},
			{sandbox.NetworkRestricted, nil, sandbox.DefaultEgress()},
			{sandbox.NetworkRestricted, &rules, rules},
		} {
			w.environment(func(p *sandbox.PutEnvironment) { p.Network, p.Egress = row.network, row.egress })
			l := w.acquire(ann)
			if spec := w.backend.Spec(l.SandboxID); spec.Network != row.network || !spec.Egress.Equal(row.want) {
				t.Errorf("network %s: the backend got %s and %+v", row.network, spec.Network, spec.Egress)
			}
			if _, err := w.engine.Release(w.Context(), sandbox.LeaseRef{ID: l.ID}); err != nil {
				t.Fatal(err)
			}
		}
	})
}

func TestAPoolFollowsWhatItsEnvironmentLetsOut(t *testing.T) {
	inWorld(t, func(w *world) {
		w.startLoop()
		w.environment(withPool(1), func(p *sandbox.PutEnvironment) { p.Network = sandbox.NetworkRestricted })
		later(time.Second)
		rules := sandbox.Egress{Allow: []sandbox.EgressRule{{Host: "github.com"}}}
		w.environment(withPool(1),
			func(p *sandbox.PutEnvironment) { p.Network, p.Egress = sandbox.NetworkRestricted, &rules })
		later(time.Minute)
		if l := w.acquire(ann); !w.backend.Spec(l.SandboxID).Egress.Equal(rules) {
			t.Errorf("the lease's sandbox got %+v", w.backend.Spec(l.SandboxID).Egress)
		}
	})
}
