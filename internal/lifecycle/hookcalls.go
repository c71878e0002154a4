package lifecycle

import (
	"context"
	"slices"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/driver"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/ledger"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/ledger/micro"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// each calls the hooks of a point in order, until one fails.
func each[H any](hooks []H, call func(H) error) error {
	for _, hook := range hooks {
		if err := call(hook); err != nil {
			return err
		}
	}
	return nil
}

// plan returns the first proposed step at a point that is due. If none is, it returns None and the earliest
// due time, or micro.Never.
func (h *Hooks) plan(s *ledger.Sandbox, p Point, now micro.Time) (Action, micro.Time) {
	next := micro.Never
	for _, hook := range h.Planners {
		a, at := hook.Plan(s, p, now)
		if a != None && at <= now {
			return a, at
		}
		next = min(next, at)
	}
	return None, next
}

// Prepare returns the fills of a sandbox, in order. It runs inside a transaction.
func (h *Hooks) Prepare(tx *ledger.Tx, s *ledger.Sandbox, b Beginning) ([]Fill, error) {
	var fills []Fill
	for _, hook := range h.Preparers {
		fill, err := hook.Prepare(tx, s, b)
		if err != nil {
			return nil, err
		}
		if fill != nil {
			fills = append(fills, fill)
		}
	}
	return fills, nil
}

// Started calls the hooks for a sandbox that was started or thawed unseen, inside a transaction.
func (h *Hooks) Started(tx *ledger.Tx, s *ledger.Sandbox, restarted bool) error {
	return each(h.Starters, func(hook Starter) error { return hook.Started(tx, s, restarted) })
}

// Differs reports whether an observation shows what a hook has not recorded.
func (h *Hooks) Differs(s *ledger.Sandbox, o driver.Observation) bool {
	return slices.ContainsFunc(h.Watchers, func(hook Watcher) bool { return hook.Differs(s, o) })
}

// Observed calls the hooks for an observation, inside the transaction that records it.
func (h *Hooks) Observed(tx *ledger.Tx, s *ledger.Sandbox, o driver.Observation) error {
	return each(h.Watchers, func(hook Watcher) error { return hook.Observed(tx, s, o) })
}

// Settled calls the hooks for a successful step, inside the transaction that settles it.
func (h *Hooks) Settled(tx *ledger.Tx, s *ledger.Sandbox, t *Step) error {
	return each(h.Settlers, func(hook Settler) error { return hook.Settled(tx, s, t) })
}

// Failed calls the hooks for a spawn that failed permanently, inside the transaction that settles it.
func (h *Hooks) Failed(tx *ledger.Tx, s *ledger.Sandbox, cause error) error {
	return each(h.Failers, func(hook Failer) error { return hook.Failed(tx, s, cause) })
}

// Admit asks the hooks whether a step may be claimed now, inside the transaction that claims it. The caller
// must call Released for an admitted step.
func (h *Hooks) Admit(tx *ledger.Tx, s *ledger.Sandbox, a Action) (bool, error) {
	for i, hook := range h.Admitters {
		if ok, err := hook.Admit(tx, s, a); err != nil || !ok {
			for _, admitted := range h.Admitters[:i] {
				admitted.Released(a)
			}
			return false, err
		}
	}
	return true, nil
}

// Claimed calls the hooks for a claimed step, inside the same transaction.
func (h *Hooks) Claimed(tx *ledger.Tx, s *ledger.Sandbox, t *Step) error {
	return each(h.Admitters, func(hook Admitter) error { return hook.Claimed(tx, s, t) })
}

// Released calls the hooks for an admitted step that is over, outside of any transaction.
func (h *Hooks) Released(a Action) {
	for _, hook := range h.Admitters {
		hook.Released(a)
	}
}

// Act lets the owner of the action carry out the step. isOwn is false if no hook owns it.
func (h *Hooks) Act(ctx context.Context, t *Step) (done Done, isOwn bool) {
	for _, hook := range h.Actors {
		if done, isOwn = hook.Act(ctx, t); isOwn {
			return done, true
		}
	}
	return done, false
}

// Vanished calls the hooks for a sandbox that vanished, inside the transaction that records that.
func (h *Hooks) Vanished(tx *ledger.Tx, s *ledger.Sandbox) error {
	return each(h.Vanishers, func(hook Vanisher) error { return hook.Vanished(tx, s) })
}

// Awaited returns the sandbox that s waits for, nil if s does not wait. It runs inside a transaction.
func (h *Hooks) Awaited(tx *ledger.Tx, s *ledger.Sandbox) (*ledger.Sandbox, error) {
	for _, hook := range h.Waiters {
		if other, err := hook.Awaited(tx, s); err != nil || other != nil {
			return other, err
		}
	}
	return nil, nil
}

// StepFailed calls the hooks for a step that failed, inside the transaction that settles it.
func (h *Hooks) StepFailed(tx *ledger.Tx, t *Step, cause error) error {
	return each(h.StepFailers, func(hook StepFailer) error { return hook.StepFailed(tx, t, cause) })
}

// Finished calls the hooks for a step whose success is recorded, outside of any transaction.
func (h *Hooks) Finished(t *Step) {
	for _, hook := range h.Finishers {
		hook.Finished(t)
	}
}

// Initializes reports whether a hook runs code in a sandbox before the sandbox is ready.
func (h *Hooks) Initializes(s *ledger.Sandbox) bool {
	return slices.ContainsFunc(h.Initializers, func(hook Initializer) bool { return hook.Initializes(s) })
}

// runsEarly reports whether code may run in a sandbox that is not ready yet.
func (h *Hooks) runsEarly(s *ledger.Sandbox) bool {
	return s.Phase == sandbox.PhasePending && h.Initializes(s)
}

// HasBegun reports, inside a transaction, whether a hook has begun to run code in a sandbox that is not ready yet.
func (h *Hooks) HasBegun(tx *ledger.Tx, s *ledger.Sandbox) (bool, error) {
	for _, hook := range h.Initializers {
		if begun, err := hook.HasBegun(tx, s); err != nil || begun {
			return begun, err
		}
	}
	return false, nil
}

// Stopped calls the hooks for a sandbox that was stopped, inside the transaction that records that.
func (h *Hooks) Stopped(tx *ledger.Tx, s *ledger.Sandbox, why string) error {
	return each(h.Stoppers, func(hook Stopper) error { return hook.Stopped(tx, s, why) })
}

// Ended calls the hooks for a lease that ends, inside the transaction that ends it.
func (h *Hooks) Ended(tx *ledger.Tx, s *ledger.Sandbox, end Ending) error {
	return each(h.Enders, func(hook Ender) error { return hook.Ended(tx, s, end) })
}

// Leaving calls the hooks for a sandbox that is about to be removed, outside of any transaction.
func (h *Hooks) Leaving(ctx context.Context, t *Step) error {
	return each(h.Leavers, func(hook Leaver) error { return hook.Leaving(ctx, t) })
}

// Extensions returns the extensions of everything that the hooks hold.
func (h *Hooks) Extensions() []Extension {
	var all []Extension
	for _, hook := range h.Extenders {
		if extend := hook.Extension(); extend != nil {
			all = append(all, extend)
		}
	}
	return all
}
