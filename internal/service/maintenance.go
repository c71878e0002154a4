package service

import (
	"context"

	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// Maintenance brings ledger and backends into agreement on request.
type Maintenance interface {
	// Sweep surveys every backend instance now, as a reconciler does at its pace, and reports what it
	// found. Errors: Unavailable when no instance can be reached.
	Sweep(ctx context.Context, r sandbox.SweepRequest) (sandbox.SweepReport, error)
	// Adopt takes sandboxes that the backends have under a ledger's label into this ledger, each with
	// a row for its lease. What cannot be adopted is reported with the reason. Errors: Invalid;
	// Unavailable when a backend instance cannot be reached.
	Adopt(ctx context.Context, r sandbox.AdoptRequest) (sandbox.AdoptReport, error)
	// Audit holds what runs on every backend instance against the rules of confinement, as it is now.
	// It changes nothing. Errors: Unavailable when no instance can be reached.
	Audit(ctx context.Context, r sandbox.AuditRequest) (sandbox.AuditReport, error)
}
