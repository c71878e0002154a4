package environment

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/hashicorp/terraform-plugin-framework/types"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/service"
	"github.com/sandbox-lease/terraform-provider-sandbox/provider/configured"
	"github.com/sandbox-lease/terraform-provider-sandbox/provider/journal"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// holding is a service that only lists leases, sorted by id.
type holding struct {
	service.Service
	leases []sandbox.Lease
}

func (h holding) ListLeases(_ context.Context, f sandbox.LeaseFilter) (page []sandbox.Lease, err error) {
	for _, l := range h.leases {
		if l.ID > f.After && len(page) < f.Limit {
			page = append(page, l)
		}
	}
	return page, nil
}

func (h holding) GetEnvironment(_ context.Context, id string) (sandbox.Environment, error) {
	return sandbox.Environment{ID: id}, nil
}

// held returns lease number i of an environment.
func held(i int, owner string) sandbox.Lease {
	return sandbox.Lease{ID: sandbox.LeaseID(fmt.Sprintf("did:plc:%05d", i), "game"), EnvironmentID: "game", Owner: owner}
}

// ofThisState returns n leases of this state.
func ofThisState(n int) (all []sandbox.Lease) {
	for i := range n {
		all = append(all, held(i, fmt.Sprintf("%s%d", configured.OwnerPrefix, i)))
	}
	return all
}

// The plan refuses a destroy while any lease exists that it does not release, however many others it releases.
func TestADestroyIsPlannedAgainstAllLeases(t *testing.T) {
	t.Parallel()
	const many = 2*sandbox.MaxPage + 1
	lost := held(many, configured.OwnerPrefix+"lost")
	stranger, ofOther := []sandbox.Lease{held(many, "stranger")}, []sandbox.Lease{held(many, configured.OwnerPrefix+"other")}
	for name, tt := range map[string]struct {
		others  []sandbox.Lease
		release int  // how many leases the plan has released
		changed bool // this run has created the other's lease
		read    bool // this run has read the environment
		refused bool
	}{
		"its own only":                    {nil, many, false, false, false},
		"a stranger's":                    {stranger, many, false, false, true},
		"another state's":                 {ofOther, many, false, false, true},
		"a stranger's, none planned":      {stranger, 0, false, false, true},
		"another state's, none planned":   {ofOther, 0, false, false, false},
		"a stranger's, read before":       {stranger, 1, false, true, true},
		"this state's, read before":       {nil, 1, false, true, false},
		"one that a killed apply made":    {[]sandbox.Lease{lost}, many, false, false, false},
		"an ephemeral lease of this run":  {ofOther, many, true, false, false},
		"one that was imported, released": {[]sandbox.Lease{held(many, "orchestrator")}, many + 1, false, false, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			leases := append(ofThisState(many), tt.others...)
			p := &configured.Provider{
				Open: func(context.Context) (configured.Service, error) {
					return configured.Service{Service: holding{leases: leases}, LedgerID: "ledger"}, nil
				},
				Journal: journal.In(t.TempDir()),
			}
			_, _, err := p.Journal.Begin(journal.Object{Kind: journal.Lease, LedgerID: "ledger", ID: lost.ID}, lost.Owner)
			if err != nil {
				t.Fatal(err)
			}
			for _, l := range leases[:tt.release] {
				p.PlanRelease(l.ID, l.Owner)
			}
			if tt.changed {
				p.Changed(tt.others[0].ID)
			}
			if tt.read {
				if _, err := p.Environment(t.Context(), holding{}, "game"); err != nil {
					t.Fatal(err)
				}
			}
			r := &Resource{Resource: configured.Resource{Provider: p}}
			diags := r.planDestroy(t.Context(), &Model{ID: types.StringValue("game"), LedgerID: types.StringValue("ledger")})
			if diags.HasError() != tt.refused {
				t.Fatalf("refused: %v, want %v: %v", diags.HasError(), tt.refused, diags)
			}
			if tt.refused && !strings.Contains(diags[0].Detail(), tt.others[0].ID+" of "+tt.others[0].Owner) {
				t.Errorf("it says %s", diags[0].Detail())
			}
		})
	}
}
