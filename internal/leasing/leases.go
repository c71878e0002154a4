package leasing

import (
	"cmp"
	"context"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/ledger"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/ledger/micro"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/lifecycle"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// GetLease implements service.Leases.
func (v *Service) GetLease(ctx context.Context, id string) (l sandbox.Lease, err error) {
	err = v.store.Read(ctx, func(tx *ledger.Tx) error {
		s, _, err := lifecycle.CurrentOf(tx, id)
		if err != nil {
			return err
		}
		l, err = v.view(tx, s)
		return err
	})
	return l, err
}

// readView returns the lease of a sandbox, of any generation.
func (v *Service) readView(ctx context.Context, sandboxID string) (l sandbox.Lease, err error) {
	err = v.store.Read(ctx, func(tx *ledger.Tx) error {
		s, err := lifecycle.MustSandbox(tx, sandboxID)
		if err != nil {
			return err
		}
		l, err = v.view(tx, s)
		return err
	})
	return l, err
}

// ListLeases implements service.Leases.
func (v *Service) ListLeases(ctx context.Context, f sandbox.LeaseFilter) (leases []sandbox.Lease, err error) {
	if err := f.Validate(); err != nil {
		return nil, err
	}
	if f.Observe {
		if err := v.observeListed(ctx, f); err != nil {
			return nil, err
		}
	}
	err = v.store.Read(ctx, func(tx *ledger.Tx) error {
		rows, err := tx.CurrentSandboxes(f)
		if err != nil {
			return err
		}
		leases, err = v.views(tx, rows)
		return err
	})
	return leases, err
}

// ObserveLease implements service.Leases.
func (v *Service) ObserveLease(ctx context.Context, id string) (sandbox.Lease, error) {
	l, err := v.GetLease(ctx, id)
	if err != nil || !observes(l) {
		return l, err
	}
	if err := v.Look(ctx, l.SandboxID); err != nil {
		return sandbox.Lease{}, lifecycle.AsError(err)
	}
	return v.GetLease(ctx, id)
}

// Renew implements service.Leases.
func (v *Service) Renew(ctx context.Context, r sandbox.Renew) (sandbox.Lease, error) {
	if err := r.Validate(); err != nil {
		return sandbox.Lease{}, err
	}
	var id string
	renew := false
	err := v.store.Write(ctx, func(tx *ledger.Tx) error {
		s, held, err := lifecycle.CurrentOf(tx, r.ID)
		if err != nil {
			return err
		}
		if err := lifecycle.CheckRef(s, r.LeaseRef); err != nil {
			return err
		}
		if !s.Live(held, tx.Now) {
			return lifecycle.ErrEnded(s, held, tx.Now)
		}
		id = s.ID
		return tx.UpdateRow(s, func(s *ledger.Sandbox) error {
			if r.Settings != nil {
				if err := v.changeSettings(tx, s, *r.Settings); err != nil {
					return err
				}
			}
			renew = v.MarkRenewalPending(tx, s)
			if err := v.Touch(tx, s); err != nil {
				return err
			}
			return tx.AppendSandboxEvent(s, sandbox.EventRenewed, map[string]any{"expires_at": s.ExpiresAt(held, tx.Now).Time()})
		})
	})
	if err != nil {
		return sandbox.Lease{}, err
	}
	if renew {
		v.RenewNow(ctx, r.ID, id)
	}
	return v.readView(ctx, id)
}

// changeSettings gives a live lease other settings of its own.
func (v *Service) changeSettings(tx *ledger.Tx, s *ledger.Sandbox, settings sandbox.LeaseSettings) error {
	if settings.MaxLifetime != nil && micro.SpanOf(*settings.MaxLifetime) != s.MaxLifetime {
		return sandbox.InvalidFields("lease", []sandbox.Field{
			{Name: "settings.max_lifetime", Problem: "is fixed when a lease begins; it is " + s.MaxLifetime.Duration().String()},
		})
	}
	env, err := tx.KnownEnvironment(s.EnvironmentID)
	if err != nil {
		return err
	}
	if err := settings.CheckLabels(env.Spec.Labels); err != nil {
		return err
	}
	s.Settings = settings
	v.environments.Follow(tx, s, env.Spec)
	return nil
}

// Release implements service.Leases.
func (v *Service) Release(ctx context.Context, r sandbox.LeaseRef) (sandbox.Lease, error) {
	id, err := v.endByRelease(ctx, r)
	if err == nil {
		err = v.AwaitGone(ctx, id)
	}
	if err != nil {
		return sandbox.Lease{}, err
	}
	return v.readView(ctx, id)
}

// StartRelease implements service.Leases.
func (v *Service) StartRelease(ctx context.Context, r sandbox.LeaseRef) (sandbox.Lease, error) {
	id, err := v.endByRelease(ctx, r)
	if err != nil {
		return sandbox.Lease{}, err
	}
	return v.readView(ctx, id)
}

// endByRelease ends a lease, and returns the id of its sandbox.
func (v *Service) endByRelease(ctx context.Context, r sandbox.LeaseRef) (id string, err error) {
	err = v.store.Write(ctx, func(tx *ledger.Tx) error {
		s, held, err := releasable(tx, r)
		if err != nil {
			return err
		}
		id = s.ID
		if s.Phase == sandbox.PhaseGone {
			return nil
		}
		end := lifecycle.TimeUp(s, held, tx.Now)
		if end == nil {
			by := cmp.Or(sandbox.ActorOf(ctx).Name, s.Owner) // an operator may release a lease of another owner
			end = &lifecycle.Ending{By: sandbox.EndedByRelease, Reason: "released by " + by, At: tx.Now}
		}
		return tx.UpdateRow(s, func(s *ledger.Sandbox) error {
			if err := v.End(tx, s, *end); err != nil {
				return err
			}
			s.Schedule.DueAt = tx.Now // a destroy that waits for a retry is tried now
			return lifecycle.EndRetention(tx, s, string(sandbox.EndedByRelease))
		})
	})
	return id, err
}

// Sleep implements service.Leases.
func (v *Service) Sleep(ctx context.Context, r sandbox.LeaseRef) (sandbox.Lease, error) {
	return v.rest(ctx, r, lifecycle.Sleep, sandbox.PhaseAsleep)
}

// Wake implements service.Leases. It counts as activity, because a woken sandbox is about to be used.
func (v *Service) Wake(ctx context.Context, r sandbox.LeaseRef) (sandbox.Lease, error) {
	u, err := v.BeginUse(ctx, r, lifecycle.ClaimTTL, nil)
	if err != nil {
		return sandbox.Lease{}, err
	}
	u.Unseen = true
	if err := u.Leave(ctx, true, nil); err != nil {
		return sandbox.Lease{}, err
	}
	return v.readView(ctx, u.Row.ID)
}

// rest puts an unused sandbox to sleep or wakes it.
func (v *Service) rest(ctx context.Context, r sandbox.LeaseRef, want lifecycle.Action,
	phase sandbox.Phase) (sandbox.Lease, error) {
	for {
		var id string
		var reached bool
		err := v.store.Read(ctx, func(tx *ledger.Tx) error {
			s, held, err := lifecycle.CurrentOf(tx, r.ID)
			if err != nil {
				return err
			}
			if err := lifecycle.CheckRef(s, r); err != nil {
				return err
			}
			id, reached = s.ID, s.Phase == phase
			switch {
			case !s.Live(held, tx.Now):
				return lifecycle.ErrEnded(s, held, tx.Now)
			case held > tx.Now && !reached:
				return sandbox.Errorf(sandbox.Conflict, "lease %s: a command or stream is running in its sandbox: end it first",
					r.ID).WithReason(sandbox.ReasonInvalidState)
			}
			return nil
		})
		if err != nil {
			return sandbox.Lease{}, err
		}
		if reached {
			return v.readView(ctx, id)
		}
		if err := v.Drive(ctx, id, want); err != nil {
			return sandbox.Lease{}, err
		}
	}
}

// releasable returns the sandbox that a release names: the current one of its lease, or a kept one of an earlier
// generation. Errors: as lifecycle.CurrentOf and lifecycle.CheckRef.
func releasable(tx *ledger.Tx, r sandbox.LeaseRef) (*ledger.Sandbox, micro.Time, error) {
	s, held, err := lifecycle.CurrentOf(tx, r.ID)
	if err != nil {
		return nil, 0, err
	}
	if r.Generation != 0 && r.Generation < s.Generation {
		kept, err := tx.KeptSandbox(r.ID, r.Generation)
		if err != nil {
			return nil, 0, err
		}
		if kept != nil {
			s, held = kept, 0
		}
	}
	return s, held, lifecycle.CheckRef(s, r)
}
