package leasing

import (
	"time"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/billing"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/driver"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/ledger"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/ledger/drift"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/ledger/micro"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/ledger/modelcalls"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/lifecycle"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/snapshots"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// status derives a lease's status from the wanted state, the observed state and the time. A lease whose time has passed
// is ended, even if no reconciler has recorded that yet.
func status(s *ledger.Sandbox, held, now micro.Time) sandbox.LeaseStatus {
	switch {
	case s.Phase == sandbox.PhaseGone:
		return sandbox.LeaseDestroyed
	case !s.Live(held, now):
		return sandbox.LeaseExpired
	case s.Phase == sandbox.PhasePending:
		return sandbox.LeasePending
	default:
		return sandbox.LeaseActive
	}
}

// view returns a sandbox's lease as readers see it, with its cost and open findings. Only transactions that read may
// call it, because others do not know the position of the events.
func (v *Service) view(tx *ledger.Tx, s *ledger.Sandbox) (sandbox.Lease, error) {
	views, err := v.views(tx, []ledger.Sandbox{*s})
	if err != nil {
		return sandbox.Lease{}, err
	}
	return views[0], nil
}

func (v *Service) views(tx *ledger.Tx, rows []ledger.Sandbox) ([]sandbox.Lease, error) {
	ids := make([]string, len(rows))
	for i := range rows {
		ids[i] = rows[i].ID
	}
	use, err := billing.UseOf(tx, ids)
	if err != nil {
		return nil, err
	}
	found, err := drift.In(tx).OpenOf(ids)
	if err != nil {
		return nil, err
	}
	held, err := tx.Holds().UntilOf(ids)
	if err != nil {
		return nil, err
	}
	feed, err := tx.Feed()
	if err != nil {
		return nil, err
	}
	calls, err := llmUse(tx, rows)
	if err != nil {
		return nil, err
	}
	leases := make([]sandbox.Lease, len(rows))
	for i := range rows {
		s := &rows[i]
		leases[i] = lease(s, held[s.ID], tx.Now)
		leases[i].LLM = calls[s.ID]
		leases[i].Cost, leases[i].Drift, leases[i].LastEventID = use.Costs[s.ID], found[s.ID], feed.Last
		leases[i].ContainerID = v.containerID(s)
		if s.Phase == sandbox.PhaseAwake { // code may run, and be billed, before
			leases[i].StartedAt = use.AwakeSince[s.ID].Time()
		}
		if s.Tombstone != nil {
			leases[i].Cost, leases[i].LLM, leases[i].PurgedAt = s.Tombstone.Cost, s.Tombstone.LLM, s.Tombstone.PurgedAt.Time()
			leases[i].ExpiresAt = time.Time{}
		}
	}
	return leases, nil
}

// containerID returns the id of a sandbox's container, "" if there is none or this process has not seen it.
func (v *Service) containerID(s *ledger.Sandbox) string {
	if s.Phase != sandbox.PhaseAwake && s.Phase != sandbox.PhaseAsleep {
		return ""
	}
	x, h, err := v.On(s)
	if err != nil { // the backend belongs to another replica
		return ""
	}
	if d, ok := x.(driver.ContainerHost); ok {
		return d.ContainerID(h)
	}
	return ""
}

// llmUse returns the use of models by those sandboxes that have LLM routes.
func llmUse(tx *ledger.Tx, rows []ledger.Sandbox) (map[string]sandbox.LLMUse, error) {
	var ids []string
	for i := range rows {
		if len(rows[i].LLM) > 0 {
			ids = append(ids, rows[i].ID)
		}
	}
	if len(ids) == 0 {
		return nil, nil
	}
	return modelcalls.In(tx).OfSandboxes(ids)
}

// lease is the pure part of view.
func lease(s *ledger.Sandbox, held, now micro.Time) sandbox.Lease {
	l := sandbox.Lease{
		ID: s.Lease(), AgentDID: s.AgentDID, EnvironmentID: s.EnvironmentID, Owner: s.Owner, Generation: s.Generation,
		Status: status(s, held, now), SandboxID: s.ID, Phase: s.Phase, SandboxStatus: lifecycle.StatusOf(s, now),
		Backend: s.Backend, Instance: s.Instance,
		WorkspacePath: sandbox.WorkspaceRoot, Image: s.Image, Resources: s.Resources(), Network: s.Network,
		TTL: s.TTL.Duration(), MaxLifetime: s.MaxLifetime.Duration(), SleepAfter: s.SleepAfter.Duration(),
		SleepMode: s.SleepMode, ExpiryConditions: s.ExpiryConditions, Settings: s.Settings,
		Labels:   s.Labels,
		LeasedAt: s.LeasedAt.Time(), ReadyAt: s.ReadyAt.Time(), LastActivity: s.LastActivity.Time(),
		ExpiresAt: s.ExpiresAt(held, now).Time(), ObservedAt: s.ObservedAt.Time(),
		EndedAt: s.Ending.At.Time(), EndedBy: s.Ending.By, EndReason: s.Ending.Reason, KeptUntil: s.Ending.KeptUntil.Time(),
		DestroyedAt: s.Ending.DestroyedAt.Time(),
		Snapshot:    snapshots.LeaseSnapshot(s), Attempts: s.Schedule.Attempts, LastError: s.Schedule.LastError,
		LastSequence: s.LastSequence, Companions: s.CompanionStatuses(),
	}
	if s.Desired == ledger.Present {
		if end := lifecycle.TimeUp(s, held, now); end != nil {
			l.EndedAt, l.EndedBy, l.EndReason = end.At.Time(), end.By, end.Reason
			l.SandboxState, l.StateChangedAt, l.StopReason = sandbox.SandboxDeleting, end.At.Time(), ""
		}
	}
	return l
}
