package leasing

import (
	"time"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/billing"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/ledger"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// status derives a lease's status from what is wanted, what was seen, and the time: a lease whose
// time has passed reads as ended even where no reconciler has recorded it yet.
func status(s *ledger.Sandbox, held, now ledger.Time) sandbox.LeaseStatus {
	switch {
	case s.Phase == sandbox.PhaseGone:
		return sandbox.LeaseDestroyed
	case !live(s, held, now):
		return sandbox.LeaseExpired
	case s.Phase == sandbox.PhasePending:
		return sandbox.LeasePending
	default:
		return sandbox.LeaseActive
	}
}

// view returns a sandbox as the lease that its readers know, with its cost and open findings. It is
// for transactions that read: in others the position of the events is not known.
func (e *Engine) view(tx *ledger.Tx, s *ledger.Sandbox) (sandbox.Lease, error) {
	views, err := e.views(tx, []ledger.Sandbox{*s})
	if err != nil {
		return sandbox.Lease{}, err
	}
	return views[0], nil
}

func (e *Engine) views(tx *ledger.Tx, rows []ledger.Sandbox) ([]sandbox.Lease, error) {
	ids := make([]string, len(rows))
	for i := range rows {
		ids[i] = rows[i].ID
	}
	costs, err := billing.CostsOf(tx, ids)
	if err != nil {
		return nil, err
	}
	drift, err := tx.Findings().OpenDriftOf(ids)
	if err != nil {
		return nil, err
	}
	held, err := tx.HeldUntilOf(ids)
	if err != nil {
		return nil, err
	}
	feed, err := tx.Feed()
	if err != nil {
		return nil, err
	}
	leases := make([]sandbox.Lease, len(rows))
	for i := range rows {
		s := &rows[i]
		leases[i] = lease(s, held[s.ID], tx.Now)
		leases[i].Cost, leases[i].Drift, leases[i].LastEventID = costs[s.ID], drift[s.ID], feed.Last
		if s.Retired != nil {
			leases[i].Cost, leases[i].RetiredAt = s.Retired.Cost, s.Retired.RetiredAt.Time()
			leases[i].ExpiresAt = time.Time{}
		}
	}
	return leases, nil
}

// lease is the pure part of view.
func lease(s *ledger.Sandbox, held, now ledger.Time) sandbox.Lease {
	l := sandbox.Lease{
		ID: s.Lease(), AgentDID: s.AgentDID, EnvironmentID: s.EnvironmentID, Owner: s.Owner, Generation: s.Generation,
		Status: status(s, held, now), SandboxID: s.ID, Phase: s.Phase, Standing: standing(s, now), Backend: s.Backend, Instance: s.Instance,
		Image: s.Image, Resources: s.Resources(), Network: s.Network,
		TTL: s.TTL.Duration(), MaxLifetime: s.MaxLifetime.Duration(), SleepAfter: s.SleepAfter.Duration(),
		SleepMode: s.SleepMode, ExpiryConditions: s.ExpiryConditions, Settings: s.Settings,
		LeasedAt: s.LeasedAt.Time(), ReadyAt: s.ReadyAt.Time(), LastActivity: s.LastActivity.Time(),
		ExpiresAt: expiresAt(s, held, now).Time(), ObservedAt: s.ObservedAt.Time(),
		EndedAt: s.Ending.At.Time(), EndedBy: s.Ending.By, EndReason: s.Ending.Reason, KeptUntil: s.Ending.KeptUntil.Time(), DestroyedAt: s.Ending.DestroyedAt.Time(),
		State: leaseState(s), Attempts: s.Schedule.Attempts, LastError: s.Schedule.LastError, LastSequence: s.LastSequence,
	}
	if s.Desired == ledger.Present {
		if end := timeUp(s, held, now); end != nil {
			l.EndedAt, l.EndedBy, l.EndReason = end.at.Time(), end.by, end.reason
			l.SandboxState, l.StateChangedAt, l.StopReason = sandbox.SandboxDeleting, end.at.Time(), ""
		}
	}
	return l
}

// checkRef refuses a request that names another generation or owner than the lease's.
func checkRef(s *ledger.Sandbox, r sandbox.LeaseRef) error {
	if r.Generation != 0 && r.Generation != s.Generation {
		return sandbox.Errorf(sandbox.Conflict, "lease %s is in generation %d, and the request is for generation %d: nothing was changed", r.ID, s.Generation, r.Generation).WithReason(sandbox.ReasonOtherGeneration)
	}
	if r.Owner != "" && r.Owner != s.Owner {
		return sandbox.Errorf(sandbox.Conflict, "lease %s belongs to %s, and the request is by %s: nothing was changed", r.ID, s.Owner, r.Owner).WithReason(sandbox.ReasonOtherOwner)
	}
	return nil
}

// errEnded says that a lease has ended and why.
func errEnded(s *ledger.Sandbox, held, now ledger.Time) error {
	l := lease(s, held, now)
	return sandbox.Errorf(sandbox.LeaseEnded, "lease %s generation %d ended at %s by %s (%s): acquire it again to get its next generation",
		l.ID, l.Generation, l.EndedAt.Format(timeFormat), l.EndedBy, l.EndReason)
}

// currentOf returns a lease's current sandbox and the end of its last hold. Errors: NotFound, Invalid.
func currentOf(tx *ledger.Tx, leaseID string) (*ledger.Sandbox, ledger.Time, error) {
	if _, _, err := sandbox.ParseLeaseID(leaseID); err != nil {
		return nil, 0, err
	}
	s, err := tx.Current(leaseID)
	if err != nil {
		return nil, 0, err
	}
	if s == nil {
		return nil, 0, sandbox.Errorf(sandbox.NotFound, "there is no lease %s on this ledger: acquire it first", leaseID).WithReason(sandbox.ReasonSandboxNotFound)
	}
	held, err := tx.HeldUntil(s.ID)
	return s, held, err
}
