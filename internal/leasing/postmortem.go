package leasing

import (
	"context"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/ledger"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/retention"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// A sandbox that failed after it was ready is kept for a while, stopped, so that an operator can look at what
// it left. Its lease has ended like any other: the next generation begins at once, its state is saved and
// let go, nothing of it runs or reaches a network, and it is counted as asleep. Until its time is over it
// stands as failed; then, or when its time ends earlier, it is removed like all others.

// The reasons for which a sandbox that was kept is removed, beside those of leases.
const (
	endOfPostMortem = "post_mortem"
	cannotBeKept    = "it cannot be stopped"
	noLongerThere   = "its backend no longer has it"
	cleanedUp       = "cleanup_ttl"
)

// isKept reports whether a sandbox is kept for a post-mortem.
func isKept(s *ledger.Sandbox) bool { return s.Ending.KeptUntil != 0 && s.Phase != sandbox.PhaseGone }

// isHalted reports whether a sandbox that is kept is known to be stopped.
func isHalted(s *ledger.Sandbox) bool {
	return isKept(s) && s.Standing.StopReason == sandbox.StopPostMortem
}

// keptUntil is until when a sandbox is kept that ends so, 0 when it is not.
func keptUntil(tx *ledger.Tx, s *ledger.Sandbox, end ending) (ledger.Time, error) {
	if end.by != sandbox.EndedByCrashed || pooled(s) {
		return 0, nil
	}
	env, err := mustEnvironment(tx, s.EnvironmentID)
	if err != nil {
		return 0, err
	}
	keep := env.Spec.KeepFailed()
	if keep == 0 || env.Status != sandbox.EnvironmentOpen && env.Status != sandbox.EnvironmentClosed {
		return 0, nil
	}
	return tx.Now.Add(ledger.SpanOf(keep)), nil
}

// bury ends a post-mortem: what was kept is removed. It does nothing to what is not kept.
func bury(tx *ledger.Tx, s *ledger.Sandbox, why string) error {
	if !isKept(s) {
		return nil
	}
	s.Ending.KeptUntil = 0
	s.Schedule.Restart(tx.Now)
	return tx.AppendSandboxEvent(s, sandbox.EventDeleteRequested, map[string]any{"reason": why})
}

// lookAtKept compares a sandbox that is kept with its backend: one that runs, for whatever reason, is
// stopped again, and one that is not there is no longer kept.
func (e *Engine) lookAtKept(ctx context.Context, s *ledger.Sandbox) error {
	x, err := e.backendFor(s.Backend)
	if err != nil {
		return err
	}
	bounded, cancel := context.WithTimeout(ctx, inspectTimeout)
	defer cancel()
	obs, err := x.Inspect(bounded, e.handle(s))
	absent := sandbox.CodeOf(err) == sandbox.NotFound
	if err != nil && !absent || obs.State == sandbox.StateStopped || obs.State == sandbox.StateRemoving {
		return err
	}
	return e.store.Write(ctx, func(tx *ledger.Tx) error {
		return tx.Update(s.ID, func(now *ledger.Sandbox) error {
			switch {
			case !isHalted(now) || now.Claim.Holds(tx.Now):
				return nil
			case absent:
				return bury(tx, now, noLongerThere)
			}
			now.Standing.StopReason, now.Schedule.DueAt = sandbox.StopOutside, tx.Now
			return nil
		})
	})
}

// buryOld ends the post-mortems of what failed before a moment, however long they were to last.
func buryOld(tx *ledger.Tx, before ledger.Time) (done retention.Purged, more bool, err error) {
	rows, err := tx.KeptSandboxes(before, retention.Batch)
	if err == nil {
		err = tx.UpdateRows(rows, func(s *ledger.Sandbox) error { return bury(tx, s, cleanedUp) })
	}
	return done, len(rows) == retention.Batch, err
}

// releasable returns the sandbox that a release names: the current one of its lease, or that of an earlier
// generation which is kept. Errors: as currentOf and checkRef.
func releasable(tx *ledger.Tx, r sandbox.LeaseRef) (*ledger.Sandbox, ledger.Time, error) {
	s, held, err := currentOf(tx, r.ID)
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
	return s, held, checkRef(s, r)
}
