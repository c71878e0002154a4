package service

import (
	"context"

	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// Maintenance reconciles ledger and backends on request.
type Maintenance interface {
	// Sweep resyncs every backend instance now, as a reconciler does periodically, and reports its findings.
	// Errors: Unavailable if no instance can be reached.
	Sweep(ctx context.Context, r sandbox.SweepRequest) (sandbox.SweepReport, error)
	// Adopt takes over the sandboxes that backends hold under a ledger's label, with a row for each lease. It
	// reports what cannot be adopted, with the reason. Errors: Invalid; Unavailable if a backend instance
	// cannot be reached.
	Adopt(ctx context.Context, r sandbox.AdoptRequest) (sandbox.AdoptReport, error)
	// Audit checks the actual confinement on every backend instance against the rules. It changes nothing.
	// Errors: Unavailable if no instance can be reached.
	Audit(ctx context.Context, r sandbox.AuditRequest) (sandbox.AuditReport, error)
}
