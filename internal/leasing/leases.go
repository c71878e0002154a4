package leasing

import (
	"context"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/ledger"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// GetLease implements service.Leases.
func (e *Engine) GetLease(ctx context.Context, id string) (l sandbox.Lease, err error) {
	err = e.store.Read(ctx, func(tx *ledger.Tx) error {
		s, _, err := currentOf(tx, id)
		if err != nil {
			return err
		}
		l, err = e.view(tx, s)
		return err
	})
	return l, err
}

// readView returns the lease of a sandbox, of whatever generation.
func (e *Engine) readView(ctx context.Context, sandboxID string) (l sandbox.Lease, err error) {
	err = e.store.Read(ctx, func(tx *ledger.Tx) error {
		s, err := mustSandbox(tx, sandboxID)
		if err != nil {
			return err
		}
		l, err = e.view(tx, s)
		return err
	})
	return l, err
}

// ListLeases implements service.Leases.
func (e *Engine) ListLeases(ctx context.Context, f sandbox.LeaseFilter) (leases []sandbox.Lease, err error) {
	if err := f.Validate(); err != nil {
		return nil, err
	}
	err = e.store.Read(ctx, func(tx *ledger.Tx) error {
		rows, err := tx.CurrentSandboxes(f)
		if err != nil {
			return err
		}
		leases, err = e.views(tx, rows)
		return err
	})
	return leases, err
}

// ObserveLease implements service.Leases.
func (e *Engine) ObserveLease(ctx context.Context, id string) (sandbox.Lease, error) {
	l, err := e.GetLease(ctx, id)
	if err != nil || l.Phase == sandbox.PhasePending || l.Phase == sandbox.PhaseGone || !l.EndedAt.IsZero() {
		return l, err
	}
	if err := e.Look(ctx, l.SandboxID); err != nil {
		return sandbox.Lease{}, asError(err)
	}
	return e.GetLease(ctx, id)
}

// Renew implements service.Leases.
func (e *Engine) Renew(ctx context.Context, r sandbox.Renew) (sandbox.Lease, error) {
	if err := r.Validate(); err != nil {
		return sandbox.Lease{}, err
	}
	var id string
	owed := false
	err := e.store.Write(ctx, func(tx *ledger.Tx) error {
		s, held, err := currentOf(tx, r.ID)
		if err != nil {
			return err
		}
		if err := checkRef(s, r.LeaseRef); err != nil {
			return err
		}
		if !live(s, held, tx.Now) {
			return errEnded(s, held, tx.Now)
		}
		id = s.ID
		return tx.UpdateRow(s, func(s *ledger.Sandbox) error {
			if r.Settings != nil {
				if err := e.changeSettings(tx, s, *r.Settings); err != nil {
					return err
				}
			}
			owed = e.oweRenewal(tx, s)
			if err := touch(tx, s); err != nil {
				return err
			}
			return tx.AppendSandboxEvent(s, sandbox.EventRenewed, map[string]any{"expires_at": expiresAt(s, held, tx.Now).Time()})
		})
	})
	if err != nil {
		return sandbox.Lease{}, err
	}
	if owed {
		e.renewNow(ctx, r.ID, id)
	}
	return e.readView(ctx, id)
}

// changeSettings gives a living lease other settings of its own.
func (e *Engine) changeSettings(tx *ledger.Tx, s *ledger.Sandbox, settings sandbox.LeaseSettings) error {
	if settings.MaxLifetime != nil && ledger.SpanOf(*settings.MaxLifetime) != s.MaxLifetime {
		return sandbox.InvalidFields("lease", []sandbox.Field{{Name: "settings.max_lifetime", Problem: "is fixed when a lease begins; it is " + s.MaxLifetime.Duration().String()}})
	}
	env, err := mustEnvironment(tx, s.EnvironmentID)
	if err != nil {
		return err
	}
	s.Settings = settings
	e.followEnvironment(tx, s, env.Spec)
	return nil
}

// touch records activity.
func touch(tx *ledger.Tx, s *ledger.Sandbox) error {
	s.LastActivity = tx.Now
	if s.Claim.Holds(tx.Now) || s.Schedule.Attempts > 0 {
		return nil // the step under way settles when it is due
	}
	held, err := tx.HeldUntil(s.ID)
	_, s.Schedule.DueAt, _ = decide(s, held, tx.Now)
	return err
}

// Release implements service.Leases.
func (e *Engine) Release(ctx context.Context, r sandbox.LeaseRef) (sandbox.Lease, error) {
	var id string
	err := e.store.Write(ctx, func(tx *ledger.Tx) error {
		s, held, err := releasable(tx, r)
		if err != nil {
			return err
		}
		id = s.ID
		if s.Phase == sandbox.PhaseGone {
			return nil
		}
		end := timeUp(s, held, tx.Now)
		if end == nil {
			end = &ending{by: sandbox.EndedByRelease, reason: "released by " + s.Owner, at: tx.Now}
		}
		return tx.UpdateRow(s, func(s *ledger.Sandbox) error {
			if err := e.endLease(tx, s, *end); err != nil {
				return err
			}
			s.Schedule.DueAt = tx.Now // a destroy that waits for its retry is tried now
			return bury(tx, s, string(sandbox.EndedByRelease))
		})
	})
	if err != nil {
		return sandbox.Lease{}, err
	}
	if err := e.awaitGone(ctx, id); err != nil {
		return sandbox.Lease{}, err
	}
	return e.readView(ctx, id)
}
