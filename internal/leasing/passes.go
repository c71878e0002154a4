package leasing

import (
	"context"
	"time"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/driver"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/retention"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// Costs implements service.Reports.
func (e *Engine) Costs(ctx context.Context, q sandbox.CostQuery) (sandbox.CostReport, error) {
	return e.billing.Costs(ctx, q)
}

// RollUp sums the usage that has ended; see billing.Service.
func (e *Engine) RollUp(ctx context.Context) error { return e.billing.RollUp(ctx) }

// CheckBudgets records the thresholds that budgets have reached; see billing.Service.
func (e *Engine) CheckBudgets(ctx context.Context) error { return e.billing.CheckBudgets(ctx) }

// ReconcileUsage compares the ledger's usage of the last days with what a backend has counted by a meter of its own. A
// backend without a meter has nothing to compare; one that refuses to be read is logged once.
func (e *Engine) ReconcileUsage(ctx context.Context, b sandbox.Backend) error {
	x, err := e.backendFor(b)
	if err != nil {
		return err
	}
	m, ok := x.Executor.(driver.Meter)
	if !ok || !x.Capabilities().Metered {
		return nil
	}
	instance, err := x.reach(ctx)
	if err != nil {
		return err
	}
	err = e.billing.CompareUsage(ctx, m, b, instance)
	if sandbox.CodeOf(err) != sandbox.Forbidden {
		return err
	}
	x.unmetered.Do(func() {
		e.log.Warn("leasing: the ledger's usage is not compared with the backend's meter: the credentials do not allow to read it", "backend", b, "error", err)
	})
	return nil
}

// Purge removes what ended more than ttl ago, sandboxes that are kept for a post-mortem included; see retention.Service.
func (e *Engine) Purge(ctx context.Context, ttl time.Duration) (retention.Purged, error) {
	return e.retention.Purge(ctx, ttl)
}

// PurgeUsage removes old samples of usage; see retention.Service.
func (e *Engine) PurgeUsage(ctx context.Context) error { return e.retention.PurgeUsage(ctx) }

// CollectEgress records what the gateways of a backend have logged; see egresslog.Collector.
func (e *Engine) CollectEgress(ctx context.Context, b sandbox.Backend) error {
	x, err := e.backendFor(b)
	if err != nil {
		return err
	}
	instance, err := x.reach(ctx)
	if err != nil {
		return err
	}
	return e.egress.Collect(ctx, x, instance)
}
