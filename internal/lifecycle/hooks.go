package lifecycle

import (
	"context"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/driver"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/ledger"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/ledger/micro"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// A hook that records something gets the row of an Update, which saves its changes. doc.go lists the points at which
// hooks are called, with their transactions.

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
	// Plan returns the step that a hook proposes at a point and when it is due, or None and micro.Never. It
	// only reads its arguments and changes nothing.
	Plan(s *ledger.Sandbox, p Point, now micro.Time) (Action, micro.Time)
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

// Settle records the result of a Fill, inside the transaction that settles the step.
type Settle func(tx *ledger.Tx, s *ledger.Sandbox) error

// Admitter decides which steps may be claimed now.
type Admitter interface {
	// Admit, inside the transaction that claims a step, reports whether it may be claimed now. If not, Admit
	// has set a later due time in the row.
	Admit(tx *ledger.Tx, s *ledger.Sandbox, a Action) (bool, error)
	// Claimed, inside the same transaction, is called after the claim.
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
	// Settle records a success, Failed a failure; nil records nothing more. If a wanted sandbox is gone, the core records
	// that instead. Both run inside the transaction that settles the step.
	Settle, Failed Settle
	// Used is a sample of the sandbox's usage.
	Used Used
	// Frozen: no process of the sandbox runs. Stuck: it was frozen for a while and could not be thawed.
	Frozen, Stuck bool
}

// Vanisher is called for sandboxes that vanish.
type Vanisher interface {
	// Vanished records the consequences, inside the transaction that records that the sandbox vanished. The
	// caller ends the lease.
	Vanished(tx *ledger.Tx, s *ledger.Sandbox) error
}

// Waiter makes sandboxes wait for other sandboxes.
type Waiter interface {
	// Awaited returns, inside a transaction, the sandbox that s waits for, nil if s does not wait.
	Awaited(tx *ledger.Tx, s *ledger.Sandbox) (*ledger.Sandbox, error)
}

// Watcher learns what observations show beyond the sandbox itself.
type Watcher interface {
	// Differs reports whether an observation shows something that the hook has not recorded. It only reads its arguments.
	Differs(s *ledger.Sandbox, o driver.Observation) bool
	// Observed records it, inside the transaction that records the observation.
	Observed(tx *ledger.Tx, s *ledger.Sandbox, o driver.Observation) error
}

// Starter is called for sandboxes that were started or thawed outside of a step, or by a step that expected them to be
// paused.
type Starter interface {
	// Started records, inside a transaction, what the sandbox may now lack. restarted: it had stopped, so its processes
	// have ended.
	Started(tx *ledger.Tx, s *ledger.Sandbox, restarted bool) error
}

// Settler is called for steps that succeed.
type Settler interface {
	// Settled records the consequences, inside the transaction that settles the step.
	Settled(tx *ledger.Tx, s *ledger.Sandbox, t *Step) error
}

// Failer is called for sandboxes whose creation failed permanently.
type Failer interface {
	// Failed records the consequences, inside the transaction that settles the failed spawn. The caller ends
	// the lease.
	Failed(tx *ledger.Tx, s *ledger.Sandbox, cause error) error
}

// StepFailer is called for steps that fail.
type StepFailer interface {
	// StepFailed records the consequences in other rows than the sandbox's, which is saved already. It runs inside the
	// transaction that settles the failed step.
	StepFailed(tx *ledger.Tx, t *Step, cause error) error
}

// Finisher is called for steps that have succeeded.
type Finisher interface {
	// Finished is called outside of any transaction, once the success of a step is recorded.
	Finished(t *Step)
}

// Initializer is a Preparer whose Fill runs code in a sandbox before it is ready.
type Initializer interface {
	// Initializes reports whether it runs code in a sandbox. The sandbox is then billed before it is ready: from the
	// first Fill on.
	Initializes(s *ledger.Sandbox) bool
	// HasBegun reports, inside a transaction, whether an earlier try of the step has begun to run code.
	HasBegun(tx *ledger.Tx, s *ledger.Sandbox) (bool, error)
}

// Stopper is called for sandboxes that stop.
type Stopper interface {
	// Stopped records what the sandbox lost, inside the transaction that records that it stopped.
	Stopped(tx *ledger.Tx, s *ledger.Sandbox, why string) error
}

// Ender is called for leases that end.
type Ender interface {
	// Ended records the consequences, inside the transaction that ends a lease. The row already says how it ended.
	Ended(tx *ledger.Tx, s *ledger.Sandbox, end Ending) error
}

// Leaver reads from a sandbox what must outlive it.
type Leaver interface {
	// Leaving is called outside of any transaction, before each attempt to remove a sandbox. It must be short, because
	// the removal waits for it. After an error the removal is retried later.
	Leaving(ctx context.Context, t *Step) error
}

// Extender holds rows of the ledger for as long as its process lives.
type Extender interface {
	// Extension is called outside of any transaction. It returns nil if the process holds nothing.
	Extension() Extension
}

// Extension extends, inside a transaction, what a process holds in the ledger.
type Extension func(tx *ledger.Tx, until micro.Time) error

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
