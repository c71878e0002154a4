package service

import (
	"context"

	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// Service is everything that can be asked of the lease system. leasing implements it in process,
// client over HTTP; servicetest holds both to the same behaviour.
//
// Every method may return Unavailable (ledger or service out of reach) and Internal. Unavailable also
// says that the ledger's answer to a commit was lost. A caller that repeats the request then gets what it
// would have got: a lease is found again, a message is a duplicate, what has ended has ended. Only
// PutEnvironment with CreateOnly may be told that the environment is there already. Exec never returns
// Unavailable once its command may have run.
type Service interface {
	Environments
	Leases
	Execs
	Sessions
	Processes
	Files
	Runs
	Monitors
	Conditions
	States
	Reports
	Maintenance
}

// Environments manages environments.
type Environments interface {
	// PutEnvironment makes an environment or changes it; live leases keep their size and image.
	// Errors: Invalid; Conflict when CreateOnly and it exists, when another owner has it, when the
	// backend changes while sandboxes live, or when Epoch goes back; what Executor.Check and Provision return.
	// What is refused changes nothing. When the backend fails while it makes what sandboxes share, a new
	// environment is rolled back, and an old one has the new settings: ask again. A request waits for others about the
	// same environment, and is carried out to its end when its caller leaves; with CreateOnly, such a creation is
	// rolled back, unless a next request comes first.
	PutEnvironment(ctx context.Context, p sandbox.PutEnvironment) (sandbox.Environment, error)
	// GetEnvironment returns one, destroyed ones included, where retention leaves the name alone (RetiredAt).
	// Errors: NotFound.
	GetEnvironment(ctx context.Context, id string) (sandbox.Environment, error)
	// ListEnvironments returns all that are not destroyed, by id.
	ListEnvironments(ctx context.Context) ([]sandbox.Environment, error)
	// ReopenEnvironment lets an ended environment give out leases again. Errors: NotFound.
	ReopenEnvironment(ctx context.Context, id string) (sandbox.Environment, error)
	// DeleteEnvironment removes it and waits until its sandboxes are gone. Destroyed is success.
	// Errors: NotFound; Conflict with ReasonActiveLeases, naming them, unless Force.
	DeleteEnvironment(ctx context.Context, d sandbox.DeleteEnvironment) error
}

// Leases manages leases and works in their sandboxes.
type Leases interface {
	// Acquire returns the agent's lease, once its sandbox is ready, or with NoWait once it is accepted:
	// then GetLease and the events tell what became of it, also when the caller goes away. It is idempotent: of any number
	// of callers one gets IsNew. Errors: Invalid; NotFound (environment); EnvironmentEnded;
	// Conflict with ReasonOtherSettings, naming the fields, or ReasonOtherOwner; Failed.
	Acquire(ctx context.Context, a sandbox.Acquire) (sandbox.Acquired, error)
	// AcquireBatch acquires the leases of several agents, as Acquire does each, and returns what became of the items in
	// their order. All are accepted in one commit and made at once. Errors: Invalid, with fields that begin with
	// "items[n]". With AllOrNone also those of Acquire for the first item that cannot be leased, which the first field names:
	// then every lease that the batch began has ended, and its sandbox is gone or being removed; leases that lived before
	// go on. Such a batch comes to its end when its caller leaves or the process dies: all of its leases begin, or those
	// that began end.
	AcquireBatch(ctx context.Context, b sandbox.AcquireBatch) ([]sandbox.AcquireResult, error)
	// GetLease returns a lease in its current generation, ended ones included, of which retention leaves
	// whose it was and how it ended (RetiredAt). Errors: NotFound: there never was such a lease.
	GetLease(ctx context.Context, id string) (sandbox.Lease, error)
	// ObserveLease looks at the lease's sandbox on its backend first, records what drifted, and
	// returns the lease; it changes no backend. An ended lease is returned without a look.
	// Errors: NotFound; Unavailable when the backend instance cannot be reached.
	ObserveLease(ctx context.Context, id string) (sandbox.Lease, error)
	// ListLeases returns leases by id, without those of which retention has left only that. Errors: Invalid.
	ListLeases(ctx context.Context, f sandbox.LeaseFilter) ([]sandbox.Lease, error)
	// Renew counts as activity. Errors: NotFound, LeaseEnded, Conflict (generation, owner), Invalid.
	Renew(ctx context.Context, r sandbox.Renew) (sandbox.Lease, error)
	// Release ends the lease and waits until its sandbox is gone; an ended lease is success once it
	// is gone. Errors: NotFound; Conflict (generation, owner); Unavailable and others of
	// Executor.Kill: the lease stays expired and is retried.
	// An earlier generation that is kept for a post-mortem is removed as well, and returned.
	Release(ctx context.Context, r sandbox.LeaseRef) (sandbox.Lease, error)
	// Exec wakes the sandbox and runs a command. It counts as activity while it runs, and at its end
	// if it exits 0. When ctx ends first, it is ended. With an ID it may be repeated: the same request
	// under the same id is the same command, whose output and result are returned again; its Stdin is
	// what it had at first. Errors: NotFound, LeaseEnded, Conflict (generation; ReasonOtherSettings, the
	// id names another command), Invalid, Failed (ReasonExecCancelled: it was cancelled);
	// UnknownOutcome when it may have run, or has run and the ledger could not record that.
	Exec(ctx context.Context, r sandbox.LeaseRef, req sandbox.ExecRequest) (sandbox.ExecResult, error)
	// Sleep and Wake change the sandbox's phase now. Errors: as Exec; Conflict while a command runs.
	Sleep(ctx context.Context, r sandbox.LeaseRef) (sandbox.Lease, error)
	Wake(ctx context.Context, r sandbox.LeaseRef) (sandbox.Lease, error)
}

// Conditions receives what happens in games.
type Conditions interface {
	// Deliver stores a condition and applies it in one transaction, and returns once that is
	// durable. Errors: Invalid; Conflict with ReasonOtherBody when the id was used for another body.
	Deliver(ctx context.Context, d sandbox.Delivery) (sandbox.Receipt, error)
}

// States manages what is kept of /data.
type States interface {
	// ListStates returns saved states by key.
	ListStates(ctx context.Context, f sandbox.StateFilter) ([]sandbox.SavedState, error)
	// DeleteState forgets what is saved under a key: who is next begins anew. Errors: NotFound;
	// Conflict while a sandbox that was in use holds it, which would save it again.
	DeleteState(ctx context.Context, key string) error
}

// Reports reads the ledger.
type Reports interface {
	// Ledger identifies the ledger. Terraform state keeps its id.
	Ledger(ctx context.Context) (sandbox.LedgerInfo, error)
	// ListEvents returns what is retained. Errors: Invalid, NotFound (sandbox), EventSequenceExpired.
	ListEvents(ctx context.Context, f sandbox.EventFilter) ([]sandbox.Event, error)
	// FollowEvents calls yield with each event, stored and new, until ctx ends or yield returns an error.
	// Errors: as ListEvents; EventSequenceExpired also when events went while yield was behind.
	FollowEvents(ctx context.Context, f sandbox.EventFilter, yield func(sandbox.Event) error) error
	// Costs sums usage periods, open ones up to now.
	Costs(ctx context.Context, q sandbox.CostQuery) (sandbox.CostReport, error)
	// ListDrift returns drift findings.
	ListDrift(ctx context.Context, f sandbox.DriftFilter) ([]sandbox.DriftFinding, error)
	// ListDeliveries returns the messages of the webhook that are kept, the latest first. Errors: Invalid.
	ListDeliveries(ctx context.Context, f sandbox.DeliveryFilter) ([]sandbox.StoredDelivery, error)
}
