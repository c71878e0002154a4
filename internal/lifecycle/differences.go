package lifecycle

import (
	"context"
	"errors"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/driver"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/ledger"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/ledger/micro"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// Differences looks at the living sandboxes of the instance and writes nothing. One that cannot be
// looked at hides no other.
func (c *Core) Differences(ctx context.Context, x *Backend, in Listing) ([]sandbox.SweepFinding, error) {
	listed := bySandbox(in.Listed())
	found := []sandbox.SweepFinding{}
	err := in.EachPage(ctx, func(rows []ledger.Sandbox) error {
		var failed []error
		for i := range rows {
			s := &rows[i]
			o, ok := listed[s.ID]
			if !c.observable(s, micro.At(c.now())) || ok && len(compare(s, o)) == 0 {
				continue
			}
			if o.Hangs { // looking again would hang
				found = append(found, sweepFinding(s, o, hangs))
				continue
			}
			seen, err := c.differencesOf(ctx, x, s)
			found, failed = append(found, seen...), append(failed, err)
		}
		return errors.Join(failed...)
	})
	return found, err
}

func (c *Core) differencesOf(ctx context.Context, x *Backend, s *ledger.Sandbox) ([]sandbox.SweepFinding, error) {
	bounded, cancel := context.WithTimeout(ctx, inspectTimeout)
	defer cancel()
	obs, err := x.Inspect(bounded, c.handle(s))
	var differences []difference
	switch {
	case sandbox.CodeOf(err) == sandbox.NotFound:
		differences = []difference{{kind: sandbox.DriftVanished, expected: string(s.Phase), observed: "absent"}}
	case err != nil:
		return nil, err
	case obs.State != sandbox.StateRemoving:
		differences = compare(s, obs)
	}
	found := make([]sandbox.SweepFinding, len(differences))
	for i, d := range differences {
		found[i] = sweepFinding(s, obs, d)
	}
	return found, nil
}

func sweepFinding(s *ledger.Sandbox, o driver.Observation, d difference) sandbox.SweepFinding {
	return sandbox.SweepFinding{
		Kind: d.kind, SandboxID: s.ID, LeaseID: s.Lease(), EnvironmentID: s.EnvironmentID,
		Field: d.field, Expected: d.expected, Observed: d.observed, CreatedAt: o.CreatedAt, Action: sandbox.SweepRecord,
	}
}
