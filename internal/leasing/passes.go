package leasing

import (
	"context"
	"errors"
	"time"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/driver"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/ledger"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/ledger/micro"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/lifecycle"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/parallel"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/retention"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// Costs implements service.Reports.
func (e *Service) Costs(ctx context.Context, q sandbox.CostQuery) (sandbox.CostReport, error) {
	return e.billing.Costs(ctx, q)
}

// RollUp sums ended usage; see billing.Service.
func (e *Service) RollUp(ctx context.Context) error { return e.billing.RollUp(ctx) }

// CheckBudgets records the thresholds that budgets have reached, and ends the leases of spent budgets; see
// billing.Service.
func (e *Service) CheckBudgets(ctx context.Context) error { return e.billing.CheckBudgets(ctx) }

// ReconcileUsage compares the ledger's usage of the last days with the backend's own meter. A backend without a meter
// has nothing to compare. If the credentials may not read the meter, it logs that once.
func (e *Service) ReconcileUsage(ctx context.Context, b sandbox.Backend) error {
	x, err := e.BackendFor(b)
	if err != nil {
		return err
	}
	m, ok := x.Executor.(driver.Meter)
	if !ok || !x.Capabilities().Metered {
		return nil
	}
	instance, err := x.Reach(ctx)
	if err != nil {
		return err
	}
	err = e.billing.CompareUsage(ctx, m, b, instance)
	if sandbox.CodeOf(err) != sandbox.Forbidden {
		return err
	}
	e.unmetered[b].Do(func() {
		e.log.Warn("leasing: the ledger's usage is not compared with the backend's meter: the credentials do not "+
			"allow reading it", "backend", b, "error", err)
	})
	return nil
}

// ReconcilePools brings every warm pool to its size; see warmpool.Service.
func (e *Service) ReconcilePools(ctx context.Context) error { return e.pools.Reconcile(ctx) }

// FinishEnvironments removes from a backend what unfinished creations and removals have left there; see
// environments.Service.
func (e *Service) FinishEnvironments(ctx context.Context, b sandbox.Backend) error {
	return e.environments.Finish(ctx, b)
}

// CollectSnapshots deletes unreferenced objects; see snapshots.Service.
func (e *Service) CollectSnapshots(ctx context.Context) error { return e.snapshots.Collect(ctx) }

// ResealSecrets re-encrypts secrets and variables of sessions with the newest key; see secrets.Service.
func (e *Service) ResealSecrets(ctx context.Context) (int, error) {
	n, err := e.secrets.Reseal(ctx, e.sessions.Reseal)
	return n, lifecycle.AsError(err)
}

// TakeOverExecs follows the commands whose reconciler has died; see commands.Service.
func (e *Service) TakeOverExecs(ctx context.Context) (time.Time, error) {
	return e.commands.TakeOver(ctx)
}

// ReconcileProcesses starts the processes that are due; see processes.Service.
func (e *Service) ReconcileProcesses(ctx context.Context) (time.Time, error) {
	return e.processes.Reconcile(ctx)
}

// CheckCompanions begins the health checks of a backend's companions that are due; see companions.Service.
func (e *Service) CheckCompanions(ctx context.Context, b sandbox.Backend, minPause time.Duration) error {
	return e.companions.Check(ctx, b, minPause)
}

// BoundOutput drops the oldest output where more is kept than the bounds allow; see output.Service.
func (e *Service) BoundOutput(ctx context.Context) error { return e.outputs.Bound(ctx) }

// ListLLMCalls implements service.Reports.
func (e *Service) ListLLMCalls(ctx context.Context, q sandbox.LLMCallQuery) ([]sandbox.LLMCall, error) {
	return e.llm.Calls(ctx, q)
}

// Purge removes what ended more than ttl ago, including sandboxes kept for a post-mortem; see retention.Service.
func (e *Service) Purge(ctx context.Context, ttl time.Duration) (retention.Purged, error) {
	return e.retention.Purge(ctx, ttl)
}

// PurgeUsage removes old usage samples; see retention.Service.
func (e *Service) PurgeUsage(ctx context.Context) error { return e.retention.PurgeUsage(ctx) }

// CollectEgress records what the gateways of a backend have logged: attempts to reach hosts, and model calls. It also
// sends them the remaining amounts for model calls. See egresslog.Collector and llm.Service.
func (e *Service) CollectEgress(ctx context.Context, b sandbox.Backend) error {
	x, err := e.BackendFor(b)
	if err != nil {
		return err
	}
	instance, err := x.Reach(ctx)
	if err != nil {
		return err
	}
	return errors.Join(e.egress.Collect(ctx, x, instance), e.llm.Collect(ctx, x, instance))
}

const (
	// overdueAtOnce limits the concurrent removals of EndOverdue, and overdueLimit the removals of one call.
	overdueAtOnce, overdueLimit = 8, 1_000
)

// EndOverdue ends leases whose time is up, and removes the sandboxes of ended leases, for a process without a loop. It
// returns once they are gone, or with the errors of those that are not.
func (e *Service) EndOverdue(ctx context.Context) error {
	var ids []string
	err := e.store.Read(ctx, func(tx *ledger.Tx) (err error) {
		ids, err = tx.OverdueSandboxes(overdueLimit)
		return err
	})
	if err != nil {
		return err
	}
	return parallel.Each(overdueAtOnce, ids, func(id *string) error {
		return lifecycle.AsError(e.Await(ctx, *id, func(tx *ledger.Tx, s *ledger.Sandbox) (bool, error) {
			return s.Phase == sandbox.PhaseGone || s.Halted() && s.Ending.KeptUntil > tx.Now, nil // a kept one stays
		}))
	})
}

// endedByCleanup is the reason for the end of a post-mortem by the cleanup ttl.
const endedByCleanup = "cleanup_ttl"

// endOldRetentions ends the post-mortems of sandboxes that failed before a time, however long they should last.
func endOldRetentions(tx *ledger.Tx, before micro.Time) (done retention.Purged, more bool, err error) {
	rows, err := tx.KeptSandboxes(before, retention.Batch)
	if err == nil {
		err = tx.UpdateRows(rows, func(s *ledger.Sandbox) error { return lifecycle.EndRetention(tx, s, endedByCleanup) })
	}
	return done, len(rows) == retention.Batch, err
}
