package leasing

import (
	"fmt"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/ledger"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/lifecycle"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/warmpool"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// An all-or-none batch ends in the transaction that records that one of its leases cannot begin.

// takenBack reports whether a lease ended before it was ready because its batch ended.
func takenBack(s *ledger.Sandbox) bool {
	return s.BatchID != "" && s.ReadyAt == 0 && s.Ending.By == sandbox.EndedByRelease
}

// StepFailed implements lifecycle.StepFailer. It ends the batch of a lease that could not begin, or replaces a sandbox
// that a pool lost.
func (v *Service) StepFailed(tx *ledger.Tx, t *lifecycle.Step, cause error) error {
	isFirst := t.Action == lifecycle.Spawn || t.Action == lifecycle.Assign
	if t.Row.BatchID == "" || !isFirst {
		return nil
	}
	s, err := lifecycle.MustSandbox(tx, t.Row.ID)
	if err != nil || s.Desired == ledger.Gone && s.Ending.By.EndedByRules() {
		return err
	}
	if warmpool.Lost(s) {
		replaced, err := v.replaceLost(tx, s)
		if replaced || err != nil {
			return err
		}
	}
	err = tx.UpdateRow(s, func(s *ledger.Sandbox) error {
		if err := v.End(tx, s, lifecycle.FailedToBegin(cause, tx.Now)); err != nil {
			return err
		}
		return v.ScheduleNext(tx, s)
	})
	if err != nil {
		return err
	}
	return v.endBatch(tx, s.BatchID, fmt.Sprintf("lease %s could not begin: %s", s.Lease(), cause))
}

// replaceLost begins the next generation of a lease whose sandbox from a pool was lost, in a new sandbox, unless it is
// refused now. It is still one lease, so it does not count again for the tenant's ceiling.
func (v *Service) replaceLost(tx *ledger.Tx, s *ledger.Sandbox) (replaced bool, err error) {
	refused, err := tx.Part(func(tx *ledger.Tx) error {
		env, err := tx.KnownEnvironment(s.EnvironmentID)
		if err != nil {
			return err
		}
		a := sandbox.Acquire{AgentDID: s.AgentDID, EnvironmentID: s.EnvironmentID, Owner: s.Owner, Settings: s.Settings}
		next, err := v.mayBegin(tx, env, a, s.Generation)
		if err != nil {
			return err
		}
		next.BatchID = s.BatchID
		next.Snapshot = ledger.NewSnapshot(env.Spec.Snapshot, next.AgentDID, next.EnvironmentID, s.Snapshot.Namespace)
		accepted := map[string]any{"owner": next.Owner, "generation": next.Generation}
		if err := tx.AppendSandboxEvent(next, sandbox.EventAccepted, accepted); err != nil {
			return err
		}
		l, err := tx.Lease(s.Lease())
		if err != nil {
			return err
		}
		if err := tx.CreateSandbox(next); err != nil {
			return err
		}
		return tx.BeginGeneration(l, next)
	})
	if refused != nil {
		v.log.Warn("leasing: a lease of a batch whose sandbox from the pool was lost cannot have another",
			lifecycle.About(s), "error", refused)
	}
	return refused == nil, err
}

// endBatch ends the live leases of a batch.
func (v *Service) endBatch(tx *ledger.Tx, batchID, why string) error {
	rows, err := tx.BatchSandboxes(batchID)
	if err != nil {
		return err
	}
	end := lifecycle.Ending{By: sandbox.EndedByRelease, Reason: "its batch leases all or none: " + why, At: tx.Now}
	return tx.UpdateRows(rows, func(s *ledger.Sandbox) error { return v.End(tx, s, end) })
}
