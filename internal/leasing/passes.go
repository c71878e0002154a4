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
func (v *Service) Costs(ctx context.Context, q sandbox.CostQuery) (sandbox.CostReport, error) {
	return v.billing.Costs(ctx, q)
}

// RollUp sums ended usage; see billing.Service.
func (v *Service) RollUp(ctx context.Context) error { return v.billing.RollUp(ctx) }

// CheckBudgets records the thresholds that budgets have reached, and ends the leases of spent budgets; see
// billing.Service.
func (v *Service) CheckBudgets(ctx context.Context) error { return v.billing.CheckBudgets(ctx) }

// ReconcileUsage compares the ledger's usage of the last days with the backend's own meter. A backend without a meter
// has nothing to compare. If the credentials may not read the meter, it logs that once.
func (v *Service) ReconcileUsage(ctx context.Context, b sandbox.Backend) error {
	x, err := v.BackendFor(b)
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
	err = v.billing.CompareUsage(ctx, m, b, instance)
	if sandbox.CodeOf(err) != sandbox.Forbidden {
		return err
	}
	v.unmetered[b].Do(func() {
		v.log.Warn("leasing: the ledger's usage is not compared with the backend's meter: the credentials do not "+
			"allow reading it", "backend", b, "error", err)
	})
	return nil
}

// ReconcilePools brings every warm pool to its size; see warmpool.Service.
func (v *Service) ReconcilePools(ctx context.Context) error { return v.pools.Reconcile(ctx) }

// FinishEnvironments removes from a backend what unfinished creations and removals have left there; see
// environments.Service.
func (v *Service) FinishEnvironments(ctx context.Context, b sandbox.Backend) error {
	return v.environments.Finish(ctx, b)
}

// CollectSnapshots deletes unreferenced objects; see snapshots.Service.
func (v *Service) CollectSnapshots(ctx context.Context) error { return v.snapshots.Collect(ctx) }

// ResealSecrets re-encrypts secrets and variables of sessions with the newest key; see secrets.Service.
func (v *Service) ResealSecrets(ctx context.Context) (int, error) {
	n, err := v.secrets.Reseal(ctx, v.sessions.Reseal)
	return n, lifecycle.AsError(err)
}

// TakeOverExecs follows the commands whose reconciler has died; see commands.Service.
func (v *Service) TakeOverExecs(ctx context.Context) (time.Time, error) {
	return v.commands.TakeOver(ctx)
}

// ReconcileProcesses starts the processes that are due; see processes.Service.
func (v *Service) ReconcileProcesses(ctx context.Context) (time.Time, error) {
	return v.processes.Reconcile(ctx)
}

// CheckCompanions begins the health checks of a backend's companions that are due, and returns when to look again; see
// companions.Service.
func (v *Service) CheckCompanions(ctx context.Context, b sandbox.Backend, minPause time.Duration) (time.Time, error) {
	return v.companions.Check(ctx, b, minPause)
}

// BoundOutput drops the oldest output where more is kept than the bounds allow; see output.Service.
func (v *Service) BoundOutput(ctx context.Context) error { return v.outputs.Bound(ctx) }

// ListLLMCalls implements service.Reports.
func (v *Service) ListLLMCalls(ctx context.Context, q sandbox.LLMCallQuery) ([]sandbox.LLMCall, error) {
	return v.llm.Calls(ctx, q)
}

// Purge removes what ended more than ttl ago, including sandboxes kept for a post-mortem; see retention.Service.
func (v *Service) Purge(ctx context.Context, ttl time.Duration) (retention.Purged, error) {
	return v.retention.Purge(ctx, ttl)
}

// PurgeUsage removes old usage samples; see retention.Service.
func (v *Service) PurgeUsage(ctx context.Context) error { return v.retention.PurgeUsage(ctx) }

// CollectEgress records what the gateways of a backend have logged: attempts to reach hosts, and model calls. It also
// sends them the remaining amounts for model calls. See egresslog.Collector and llm.Service.
func (v *Service) CollectEgress(ctx context.Context, b sandbox.Backend) error {
	x, err := v.BackendFor(b)
	if err != nil {
		return err
	}
	instance, err := x.Reach(ctx)
	if err != nil {
		return err
	}
	return errors.Join(v.egress.Collect(ctx, x, instance), v.llm.Collect(ctx, x, instance))
}

const (
	// overdueAtOnce limits the concurrent removals of EndOverdue, and overdueLimit the removals of one call.
	overdueAtOnce, overdueLimit = 8, 1_000
)

// EndOverdue ends leases whose time is up, and removes the sandboxes of ended leases, for a process without a loop. It
// returns once they are gone, or with the errors of those that are not.
func (v *Service) EndOverdue(ctx context.Context) error {
	var ids []string
	err := v.store.Read(ctx, func(tx *ledger.Tx) (err error) {
		ids, err = tx.OverdueSandboxes(overdueLimit)
		return err
	})
	if err != nil {
		return err
	}
	return parallel.Each(overdueAtOnce, ids, func(id *string) error {
		return lifecycle.AsError(v.Await(ctx, *id, func(tx *ledger.Tx, s *ledger.Sandbox) (bool, error) {
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
