package service

import (
	"context"

	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// Service is the complete interface of the lease system. leasing implements it in process, client over HTTP.
// servicetest verifies that both behave the same.
//
// Every method may return Unavailable (ledger or service cannot be reached) and Internal. Unavailable also
// means that the ledger's answer to a commit was lost. A repeated request then returns what the first would
// have returned: the same lease, a duplicate message, an ended object. The only exception is PutEnvironment
// with CreateOnly, which may find its own environment. Exec never returns Unavailable after its command may
// have run.
type Service interface {
	Environments
	Leases
	Execs
	Sessions
	Processes
	Companions
	Files
	Workspaces
	Runs
	Health
	Conditions
	Snapshots
	Reports
	Maintenance
}

// Environments manages environments.
type Environments interface {
	// PutEnvironment creates or changes an environment. Live leases keep their size and image. Errors:
	// Invalid; Conflict if CreateOnly is set and it exists, if it has another owner, if the backend changes
	// while sandboxes live, or if Epoch decreases; those of Executor.Check and Provision.
	//
	// A refused request changes nothing. If the backend fails to provision shared resources, a new
	// environment is rolled back, and an existing one keeps the new settings: repeat the request. A request
	// waits for others about the same environment. It completes even if its caller disconnects; with
	// CreateOnly, such a creation is rolled back unless another request follows first.
	PutEnvironment(ctx context.Context, p sandbox.PutEnvironment) (sandbox.Environment, error)
	// CheckEnvironment returns the error with which PutEnvironment would refuse a request now. It changes nothing, and
	// waits for no other request. Nil does not promise success, because only the backend can find out whether a registry
	// has an image.
	CheckEnvironment(ctx context.Context, p sandbox.PutEnvironment) error
	// GetEnvironment returns an environment, including destroyed ones. After a purge only its name is left
	// (PurgedAt). Errors: NotFound.
	GetEnvironment(ctx context.Context, id string) (sandbox.Environment, error)
	// ListEnvironments returns all environments that are not destroyed, by id.
	ListEnvironments(ctx context.Context) ([]sandbox.Environment, error)
	// ReopenEnvironment lets an ended environment grant leases again. Errors: NotFound; Conflict
	// unless it is open or ended.
	ReopenEnvironment(ctx context.Context, id string) (sandbox.Environment, error)
	// DeleteEnvironment removes an environment and waits until its sandboxes are gone. Already destroyed is
	// success. Errors: NotFound; Conflict with ReasonActiveLeases, naming them, unless Force.
	DeleteEnvironment(ctx context.Context, d sandbox.DeleteEnvironment) error
}

// Leases manages leases.
type Leases interface {
	// Acquire returns the agent's lease once its sandbox is ready. With NoWait it returns once the request is
	// accepted; GetLease and the events then report progress, even if the caller disconnects. It is
	// idempotent: exactly one of several callers gets IsNew. Errors: Invalid; NotFound (environment);
	// EnvironmentEnded; Conflict with ReasonOtherSettings, naming the fields, or ReasonOtherOwner; Failed.
	Acquire(ctx context.Context, a sandbox.Acquire) (sandbox.Acquired, error)
	// AcquireBatch acquires the leases of several agents, each as Acquire does, and returns the results in
	// the order of the items. One commit accepts all, and they are created in parallel. Errors: Invalid, with
	// fields that start with "items[n]".
	//
	// With AllOrNone, it also returns the error of Acquire for the first failed item, which the first field
	// names. Then every lease that the batch began has ended, and its sandbox is gone or being removed;
	// earlier leases continue. Such a batch completes even if its caller disconnects or the process dies: all
	// of its leases begin, or those that began end.
	AcquireBatch(ctx context.Context, b sandbox.AcquireBatch) ([]sandbox.AcquireResult, error)
	// GetLease returns a lease in its current generation, including ended ones. After a purge only its owner
	// and end are left (PurgedAt). Errors: NotFound if there never was such a lease.
	GetLease(ctx context.Context, id string) (sandbox.Lease, error)
	// ObserveLease first inspects the lease's sandbox on its backend and records drift, then returns the
	// lease. It does not change the backend. An ended lease is returned without inspection. Errors: NotFound;
	// Unavailable if the backend instance cannot be reached.
	ObserveLease(ctx context.Context, id string) (sandbox.Lease, error)
	// ListLeases returns leases, without purged ones. With Observe it first inspects those of the page as
	// ObserveLease does, with one listing of each backend. Errors: Invalid; with Observe also those of ObserveLease.
	ListLeases(ctx context.Context, f sandbox.LeaseFilter) ([]sandbox.Lease, error)
	// Renew counts as activity. Errors: NotFound, LeaseEnded, Conflict (generation, owner), Invalid.
	Renew(ctx context.Context, r sandbox.Renew) (sandbox.Lease, error)
	// Release ends the lease and waits until its sandbox is gone. For an ended lease it only waits. It also
	// removes, and then returns, an earlier generation that is kept for a post-mortem. Errors: NotFound;
	// Conflict (generation, owner); Unavailable and others of Executor.Kill: the lease stays expired and the
	// removal is retried.
	Release(ctx context.Context, r sandbox.LeaseRef) (sandbox.Lease, error)
	// StartRelease ends the lease like Release, but does not wait: the lease is expired until its sandbox is
	// gone. Errors: as Release, without those of Executor.Kill.
	StartRelease(ctx context.Context, r sandbox.LeaseRef) (sandbox.Lease, error)
	// Sleep and Wake change the sandbox's phase now. Errors: as Exec; Conflict while a command runs.
	Sleep(ctx context.Context, r sandbox.LeaseRef) (sandbox.Lease, error)
	Wake(ctx context.Context, r sandbox.LeaseRef) (sandbox.Lease, error)
}

// Conditions receives conditions from games.
type Conditions interface {
	// Deliver stores and applies a condition in one transaction, and returns once it is durable. Errors:
	// Invalid; Conflict with ReasonOtherBody if the id was used with another body.
	Deliver(ctx context.Context, d sandbox.Delivery) (sandbox.Receipt, error)
}

// Snapshots manages saved /data.
type Snapshots interface {
	// ListSnapshots returns snapshots by key.
	ListSnapshots(ctx context.Context, f sandbox.SnapshotFilter) ([]sandbox.Snapshot, error)
	// DeleteSnapshot deletes the snapshot of a key. The next lease starts empty. Errors: NotFound; Conflict
	// while a used sandbox holds the key, because it would save it again.
	DeleteSnapshot(ctx context.Context, key string) error
}

// Reports reads the ledger.
type Reports interface {
	// Ledger identifies the ledger. Terraform state keeps its id.
	Ledger(ctx context.Context) (sandbox.LedgerInfo, error)
	// ListEvents returns retained events. Errors: Invalid, NotFound (sandbox), EventSequenceExpired.
	ListEvents(ctx context.Context, f sandbox.EventFilter) ([]sandbox.Event, error)
	// FollowEvents calls yield with each stored and new event until ctx ends or yield returns an error.
	// Errors: as ListEvents; EventSequenceExpired also if events were purged while yield was behind.
	FollowEvents(ctx context.Context, f sandbox.EventFilter, yield func(sandbox.Event) error) error
	// Costs sums usage periods; an open period counts up to now.
	Costs(ctx context.Context, q sandbox.CostQuery) (sandbox.CostReport, error)
	// ListLLMCalls returns the latest model calls, newest first. Errors: Invalid.
	ListLLMCalls(ctx context.Context, q sandbox.LLMCallQuery) ([]sandbox.LLMCall, error)
	// ListDrift returns drift findings.
	ListDrift(ctx context.Context, f sandbox.DriftFilter) ([]sandbox.DriftFinding, error)
	// ListDeliveries returns the retained webhook messages, newest first. Errors: Invalid.
	ListDeliveries(ctx context.Context, f sandbox.DeliveryFilter) ([]sandbox.StoredDelivery, error)
}
