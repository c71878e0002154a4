package leasing

import (
	"context"
	"errors"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/ledger"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/lifecycle"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// observeListed inspects the live sandboxes of a page of leases, as ObserveLease does for one.
func (v *Service) observeListed(ctx context.Context, f sandbox.LeaseFilter) error {
	living := make(map[sandbox.Backend][]ledger.Sandbox)
	drifted := make(map[string]bool)
	err := v.store.Read(ctx, func(tx *ledger.Tx) error {
		rows, err := tx.CurrentSandboxes(f)
		if err != nil {
			return err
		}
		leases, err := v.views(tx, rows)
		if err != nil {
			return err
		}
		for i, l := range leases {
			if observes(l) {
				living[l.Backend] = append(living[l.Backend], rows[i])
				drifted[l.SandboxID] = len(l.Drift) > 0
			}
		}
		return nil
	})
	if err != nil {
		return err
	}
	var errs []error
	for backend, rows := range living {
		errs = append(errs, v.LookAtMany(ctx, backend, rows, drifted))
	}
	return lifecycle.AsError(errors.Join(errs...))
}

// observes reports whether the backend could contradict what the ledger says about a lease.
func observes(l sandbox.Lease) bool {
	return l.Phase != sandbox.PhasePending && l.Phase != sandbox.PhaseGone && l.EndedAt.IsZero()
}
