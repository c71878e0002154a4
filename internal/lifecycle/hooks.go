package lifecycle

import (
	"context"
	"slices"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/driver"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/ledger"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// Point is a place in the sequence of a sandbox's steps at which a hook may propose one.
type Point int

// The points, in the order in which a sandbox reaches them.
const (
	// Interrupted comes first for a sandbox that has begun: unfinished work is completed.
	Interrupted Point = iota
	// Ready is for an awake, leased sandbox. It is not used while a hook proposes a step here.
	Ready
	// BeforeSleep is for a sandbox that has been idle long enough, or that a request puts to sleep.
	BeforeSleep
	// Idle is for a sandbox for which the core has no step now.
	Idle
	// BeforeKill is for a sandbox that will be removed.
	BeforeKill
)

// Planner proposes steps.
type Planner interface {
	// Plan returns the step that a hook proposes at a point and when it is due, or None and ledger.Never. It
	// only reads its arguments and changes nothing.
	Plan(s *ledger.Sandbox, p Point, now ledger.Time) (Action, ledger.Time)
}

// Preparer gives a sandbox what it needs before its first use.
type Preparer interface {
	// Prepare reads, inside a transaction, what the sandbox will be filled with. A nil Fill fills nothing.
	Prepare(tx *ledger.Tx, s *ledger.Sandbox, b Beginning) (Fill, error)
}

// Beginning says why a sandbox is filled.
type Beginning struct {
	// Action is the step's action. Spawn and Assign begin a lease. After a Wake the sandbox still has its
	// disks.
	Action Action
	// Spec is the environment's, set if a lease begins.
	Spec sandbox.EnvironmentSpec
	// InUse: an earlier attempt of the step already ran code in the sandbox, so its files must not be
	// changed.
	InUse bool
}

// Fill fills a running, unused sandbox, outside of any transaction. It may be called again after an
// interruption.
type Fill func(ctx context.Context, t *Step) (Settle, error)

// Settle records the result of a Fill, inside the transaction that settles the step. The caller stores the
// row.
type Settle func(tx *ledger.Tx, s *ledger.Sandbox) error

// Admitter decides which steps may be claimed now.
type Admitter interface {
	// Admit, inside the transaction that claims a step, reports whether it may be claimed now. If not, Admit
	// has set a later due time in the row. The caller stores the row.
	Admit(tx *ledger.Tx, s *ledger.Sandbox, a Action) (bool, error)
	// Claimed, inside the same transaction, is called after the claim. The caller stores the row.
	Claimed(tx *ledger.Tx, s *ledger.Sandbox, t *Step) error
	// Released, outside of any transaction, is called when an admitted step is over or was not claimed.
	Released(a Action)
}

// Actor carries out the steps of its own actions.
type Actor interface {
	// Act carries out a step, outside of any transaction. isOwn is false if the action belongs to another
	// hook; then Act does nothing.
	Act(ctx context.Context, t *Step) (done Done, isOwn bool)
}

// Done is the result of Act.
type Done struct {
	Err error
	// Settle records a success, Failed a failure. If a wanted sandbox is gone, the core records that instead.
	// Both run inside the transaction that settles the step.
	Settle, Failed Settle
	// Usage is a sample of the sandbox's usage, if Sampled.
	Usage   driver.Usage
	Sampled bool
	// Frozen: no process of the sandbox runs. Stuck: it was frozen for a while and could not be thawed.
	Frozen, Stuck bool
}

// Vanisher is called for sandboxes that vanish.
type Vanisher interface {
	// Vanished records the consequences, inside the transaction that records that the sandbox vanished. The
	// caller stores the row and ends the lease.
	Vanished(tx *ledger.Tx, s *ledger.Sandbox) error
}

// Waiter makes sandboxes wait for other sandboxes.
type Waiter interface {
	// Awaited returns, inside a transaction, the sandbox that s waits for, nil if s does not wait.
	Awaited(tx *ledger.Tx, s *ledger.Sandbox) (*ledger.Sandbox, error)
}

// Watcher learns what observations show beyond the sandbox itself.
type Watcher interface {
	// Differs reports whether an observation shows what the hook has not recorded. It only reads its arguments.
	Differs(s *ledger.Sandbox, o driver.Observation) bool
	// Observed records it, inside the transaction that records the observation. The caller stores the row.
	Observed(tx *ledger.Tx, s *ledger.Sandbox, o driver.Observation) error
}

// Starter is called for sandboxes that were started or thawed outside of a step, or started by one that took them for
// paused.
type Starter interface {
	// Started records, inside a transaction, what the sandbox may now lack. anew: it had stopped, so that nothing in it
	// ran on. The caller stores the row.
	Started(tx *ledger.Tx, s *ledger.Sandbox, anew bool) error
}

// Settler is called for steps that succeed.
type Settler interface {
	// Settled records the consequences, inside the transaction that settles the step. The caller stores the
	// row.
	Settled(tx *ledger.Tx, s *ledger.Sandbox, t *Step) error
}

// Failer is called for sandboxes whose creation failed permanently.
type Failer interface {
	// Failed records the consequences, inside the transaction that settles the failed spawn. The caller
	// stores the row and ends the lease.
	Failed(tx *ledger.Tx, s *ledger.Sandbox, cause error) error
}

// StepFailer learns of steps that fail.
type StepFailer interface {
	// StepFailed records, inside the transaction that settles a step which failed, what follows beyond the sandbox's row,
	// which is stored already.
	StepFailed(tx *ledger.Tx, t *Step, cause error) error
}

// Finisher learns of steps that have succeeded.
type Finisher interface {
	// Finished, outside of any transaction, learns of a step whose success is recorded.
	Finished(t *Step)
}

// Initializer runs code in a sandbox before that is ready. It is a Preparer, whose Fill does so.
type Initializer interface {
	// Initializes reports whether it does so in a sandbox, whose usage counts from its start then.
	Initializes(s *ledger.Sandbox) bool
	// HasBegun reports, inside a transaction, whether an earlier try of the step has begun to.
	HasBegun(tx *ledger.Tx, s *ledger.Sandbox) (bool, error)
}

// Stopper learns of sandboxes that stop.
type Stopper interface {
	// Stopped records, inside the transaction that records that a sandbox was stopped, what it has lost by that. The
	// caller stores the row.
	Stopped(tx *ledger.Tx, s *ledger.Sandbox, why string) error
}

// Ender learns of leases that end.
type Ender interface {
	// Ended records, inside the transaction that ends a lease, what follows. The row says already how it ended. The
	// caller stores it.
	Ended(tx *ledger.Tx, s *ledger.Sandbox, end Ending) error
}

// Leaver takes what is to outlive a sandbox out of it.
type Leaver interface {
	// Leaving, outside of any transaction, is called before a sandbox is removed, again before each attempt. It is short:
	// the removal waits for it. After an error the removal is tried again later.
	Leaving(ctx context.Context, t *Step) error
}

// Extender holds things in the ledger for as long as its process lives.
type Extender interface {
	// Extension, outside of any transaction, returns what extends that until a moment, inside one. nil: it holds nothing.
	Extension() Extension
}

// Extension extends what a process holds in the ledger.
type Extension func(tx *ledger.Tx, until ledger.Time) error

// Hooks are the parts of a service that take part in a sandbox's life. Each point calls them in list order.
type Hooks struct {
	Planners     []Planner
	Admitters    []Admitter
	Initializers []Initializer
	Preparers    []Preparer
	Starters     []Starter
	Watchers     []Watcher
	Stoppers     []Stopper
	Settlers     []Settler
	StepFailers  []StepFailer
	Failers      []Failer
	Finishers    []Finisher
	Actors       []Actor
	Vanishers    []Vanisher
	Enders       []Ender
	Leavers      []Leaver
	Waiters      []Waiter
	Extenders    []Extender
}

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
// due time, or ledger.Never.
func (h *Hooks) plan(s *ledger.Sandbox, p Point, now ledger.Time) (Action, ledger.Time) {
	next := ledger.Never
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

// FillAll fills a sandbox and returns what settles the fills. It runs outside of any transaction.
func FillAll(ctx context.Context, t *Step, fills []Fill) ([]Settle, error) {
	var settles []Settle
	for _, fill := range fills {
		settle, err := fill(ctx, t)
		if err != nil {
			return nil, err
		}
		if settle != nil {
			settles = append(settles, settle)
		}
	}
	return settles, nil
}

// Started calls the hooks for a sandbox that was started or thawed unseen, inside a transaction.
func (h *Hooks) Started(tx *ledger.Tx, s *ledger.Sandbox, anew bool) error {
	return each(h.Starters, func(hook Starter) error { return hook.Started(tx, s, anew) })
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

// Vanished calls the hooks for a sandbox that vanished, inside the transaction that records it.
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

// StepFailed calls the hooks of a step that failed, inside the transaction that settles it.
func (h *Hooks) StepFailed(tx *ledger.Tx, t *Step, cause error) error {
	return each(h.StepFailers, func(hook StepFailer) error { return hook.StepFailed(tx, t, cause) })
}

// Finished calls the hooks of a step whose success is recorded, outside of any transaction.
func (h *Hooks) Finished(t *Step) {
	for _, hook := range h.Finishers {
		hook.Finished(t)
	}
}

// Initializes reports whether a hook runs code in a sandbox before that is ready.
func (h *Hooks) Initializes(s *ledger.Sandbox) bool {
	return slices.ContainsFunc(h.Initializers, func(hook Initializer) bool { return hook.Initializes(s) })
}

// HasBegun reports, inside a transaction, whether a hook has begun to run code in a sandbox before that is ready.
func (h *Hooks) HasBegun(tx *ledger.Tx, s *ledger.Sandbox) (bool, error) {
	for _, hook := range h.Initializers {
		if begun, err := hook.HasBegun(tx, s); err != nil || begun {
			return begun, err
		}
	}
	return false, nil
}

// Stopped calls the hooks of a sandbox that was stopped, inside the transaction that records it.
func (h *Hooks) Stopped(tx *ledger.Tx, s *ledger.Sandbox, why string) error {
	return each(h.Stoppers, func(hook Stopper) error { return hook.Stopped(tx, s, why) })
}

// Ended calls the hooks of a lease that ends, inside the transaction that ends it.
func (h *Hooks) Ended(tx *ledger.Tx, s *ledger.Sandbox, end Ending) error {
	return each(h.Enders, func(hook Ender) error { return hook.Ended(tx, s, end) })
}

// Leaving calls the hooks of a sandbox that is about to be removed, outside of any transaction.
func (h *Hooks) Leaving(ctx context.Context, t *Step) error {
	return each(h.Leavers, func(hook Leaver) error { return hook.Leaving(ctx, t) })
}

// Extensions returns what extends what the hooks hold.
func (h *Hooks) Extensions() []Extension {
	var all []Extension
	for _, hook := range h.Extenders {
		if extend := hook.Extension(); extend != nil {
			all = append(all, extend)
		}
	}
	return all
}
