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
func (e *Service) GetLease(ctx context.Context, id string) (l sandbox.Lease, err error) {
	err = e.store.Read(ctx, func(tx *ledger.Tx) error {
		s, _, err := lifecycle.CurrentOf(tx, id)
		if err != nil {
			return err
		}
		l, err = e.view(tx, s)
		return err
	})
	return l, err
}

// readView returns the lease of a sandbox, of any generation.
func (e *Service) readView(ctx context.Context, sandboxID string) (l sandbox.Lease, err error) {
	err = e.store.Read(ctx, func(tx *ledger.Tx) error {
		s, err := lifecycle.MustSandbox(tx, sandboxID)
		if err != nil {
			return err
		}
		l, err = e.view(tx, s)
		return err
	})
	return l, err
}

// ListLeases implements service.Leases.
func (e *Service) ListLeases(ctx context.Context, f sandbox.LeaseFilter) (leases []sandbox.Lease, err error) {
	if err := f.Validate(); err != nil {
		return nil, err
	}
	if f.Observe {
		if err := e.observeListed(ctx, f); err != nil {
			return nil, err
		}
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
func (e *Service) ObserveLease(ctx context.Context, id string) (sandbox.Lease, error) {
	l, err := e.GetLease(ctx, id)
	if err != nil || !observes(l) {
		return l, err
	}
	if err := e.Look(ctx, l.SandboxID); err != nil {
		return sandbox.Lease{}, lifecycle.AsError(err)
	}
	return e.GetLease(ctx, id)
}

// Renew implements service.Leases.
func (e *Service) Renew(ctx context.Context, r sandbox.Renew) (sandbox.Lease, error) {
	if err := r.Validate(); err != nil {
		return sandbox.Lease{}, err
	}
	var id string
	renew := false
	err := e.store.Write(ctx, func(tx *ledger.Tx) error {
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
				if err := e.changeSettings(tx, s, *r.Settings); err != nil {
					return err
				}
			}
			renew = e.MarkRenewalPending(tx, s)
			if err := e.Touch(tx, s); err != nil {
				return err
			}
			return tx.AppendSandboxEvent(s, sandbox.EventRenewed, map[string]any{"expires_at": s.ExpiresAt(held, tx.Now).Time()})
		})
	})
	if err != nil {
		return sandbox.Lease{}, err
	}
	if renew {
		e.RenewNow(ctx, r.ID, id)
	}
	return e.readView(ctx, id)
}

// changeSettings gives a live lease other settings of its own.
func (e *Service) changeSettings(tx *ledger.Tx, s *ledger.Sandbox, settings sandbox.LeaseSettings) error {
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
	e.environments.Follow(tx, s, env.Spec)
	return nil
}

// Release implements service.Leases.
func (e *Service) Release(ctx context.Context, r sandbox.LeaseRef) (sandbox.Lease, error) {
	id, err := e.endByRelease(ctx, r)
	if err == nil {
		err = e.AwaitGone(ctx, id)
	}
	if err != nil {
		return sandbox.Lease{}, err
	}
	return e.readView(ctx, id)
}

// StartRelease implements service.Leases.
func (e *Service) StartRelease(ctx context.Context, r sandbox.LeaseRef) (sandbox.Lease, error) {
	id, err := e.endByRelease(ctx, r)
	if err != nil {
		return sandbox.Lease{}, err
	}
	return e.readView(ctx, id)
}

// endByRelease ends a lease, and returns the id of its sandbox.
func (e *Service) endByRelease(ctx context.Context, r sandbox.LeaseRef) (id string, err error) {
	err = e.store.Write(ctx, func(tx *ledger.Tx) error {
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
			if err := e.End(tx, s, *end); err != nil {
				return err
			}
			s.Schedule.DueAt = tx.Now // a destroy that waits for a retry is tried now
			return lifecycle.EndRetention(tx, s, string(sandbox.EndedByRelease))
		})
	})
	return id, err
}

// Sleep implements service.Leases.
func (e *Service) Sleep(ctx context.Context, r sandbox.LeaseRef) (sandbox.Lease, error) {
	return e.rest(ctx, r, lifecycle.Sleep, sandbox.PhaseAsleep)
}

// Wake implements service.Leases. It counts as activity, because a woken sandbox is about to be used.
func (e *Service) Wake(ctx context.Context, r sandbox.LeaseRef) (sandbox.Lease, error) {
	u, err := e.BeginUse(ctx, r, lifecycle.ClaimTTL, nil)
	if err != nil {
		return sandbox.Lease{}, err
	}
	u.Unseen = true
	if err := u.Leave(ctx, true, nil); err != nil {
		return sandbox.Lease{}, err
	}
	return e.readView(ctx, u.Row.ID)
}

// rest puts an unused sandbox to sleep or wakes it.
func (e *Service) rest(ctx context.Context, r sandbox.LeaseRef, want lifecycle.Action,
	phase sandbox.Phase) (sandbox.Lease, error) {
	for {
		var id string
		var reached bool
		err := e.store.Read(ctx, func(tx *ledger.Tx) error {
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
			return e.readView(ctx, id)
		}
		if err := e.Drive(ctx, id, want); err != nil {
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
