package lifecycle

import (
	"context"
	"errors"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/driver"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/ledger"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/ledger/micro"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// Compare inspects the living sandboxes of the instance and writes nothing. A sandbox that cannot be inspected does not
// hide the others.
func (b *Backend) Compare(ctx context.Context, in Listing) ([]sandbox.SweepFinding, error) {
	listed := bySandbox(in.Listed())
	found := []sandbox.SweepFinding{}
	err := in.EachPage(ctx, func(rows []ledger.Sandbox) error {
		var failed []error
		for i := range rows {
			s := &rows[i]
			o, ok := listed[s.ID]
			if !b.core.observable(s, micro.At(b.core.now())) || ok && len(compare(s, o)) == 0 {
				continue
			}
			if o.Hangs { // looking again would hang
				found = append(found, sweepFinding(s, o, hangs))
				continue
			}
			seen, err := b.differencesOf(ctx, s)
			found, failed = append(found, seen...), append(failed, err)
		}
		return errors.Join(failed...)
	})
	return found, err
}

func (b *Backend) differencesOf(ctx context.Context, s *ledger.Sandbox) ([]sandbox.SweepFinding, error) {
	bounded, cancel := context.WithTimeout(ctx, inspectTimeout)
	defer cancel()
	obs, err := b.Inspect(bounded, b.core.handle(s))
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
