package lifecycle

import (
	"context"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/ledger"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/ledger/micro"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// A sandbox that failed after it was ready is kept for a while, stopped, so that an operator can inspect it. Its lease
// has ended like any other: its snapshot is saved, and the next generation begins immediately. None of its processes
// runs, and it is billed as asleep. Its state is failed until it is removed like any other sandbox.

// The reasons for which a kept sandbox is removed, in addition to those of leases.
const (
	endOfPostMortem = "post_mortem"
	cannotBeKept    = "it cannot be stopped"
	noLongerThere   = "its backend no longer has it"
)

// keptUntil returns until when a sandbox with this ending is kept, 0 if it is not kept.
func keptUntil(tx *ledger.Tx, s *ledger.Sandbox, end Ending) (micro.Time, error) {
	if end.By != sandbox.EndedByCrashed || s.Pooled() {
		return 0, nil
	}
	env, err := tx.KnownEnvironment(s.EnvironmentID)
	if err != nil {
		return 0, err
	}
	keep := env.Spec.KeepFailed()
	if keep == 0 || env.Status != sandbox.EnvironmentOpen && env.Status != sandbox.EnvironmentClosed {
		return 0, nil
	}
	return tx.Now.Add(micro.SpanOf(keep)), nil
}

// EndRetention ends a post-mortem, so that the sandbox is removed. It does nothing to a sandbox that is not kept.
func EndRetention(tx *ledger.Tx, s *ledger.Sandbox, why string) error {
	if !s.Kept() {
		return nil
	}
	s.Ending.KeptUntil = 0
	s.Schedule.Restart(tx.Now)
	return tx.AppendSandboxEvent(s, sandbox.EventDeleteRequested, map[string]any{"reason": why})
}

// lookAtKept compares a kept sandbox with its backend. A sandbox that runs is stopped again. A missing one is no longer
// kept.
func (c *Core) lookAtKept(ctx context.Context, s *ledger.Sandbox) error {
	x, err := c.BackendFor(s.Backend)
	if err != nil {
		return err
	}
	if err := c.MustReach(ctx, s.Backend, s.Instance); err != nil {
		return err
	}
	bounded, cancel := context.WithTimeout(ctx, inspectTimeout)
	defer cancel()
	obs, err := x.Inspect(bounded, c.handle(s))
	absent := sandbox.CodeOf(err) == sandbox.NotFound
	if err != nil && !absent || obs.State == sandbox.StateStopped || obs.State == sandbox.StateRemoving {
		return err
	}
	return c.store.Write(ctx, func(tx *ledger.Tx) error {
		return tx.Update(s.ID, func(now *ledger.Sandbox) error {
			switch {
			case !now.Halted() || now.Claim.Holds(tx.Now):
				return nil
			case absent:
				return EndRetention(tx, now, noLongerThere)
			}
			now.Status.StopReason, now.Schedule.DueAt = sandbox.StopOutside, tx.Now
			return nil
		})
	})
}
