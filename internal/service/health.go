package service

import (
	"context"

	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// Health inspects a lease's sandbox. It wakes no sandbox, records nothing, and does not count as activity.
type Health interface {
	// LeaseUsage samples the sandbox's current usage. Errors: NotFound, LeaseEnded, Conflict (generation;
	// ReasonInvalidState while the sandbox is being created), Unavailable.
	LeaseUsage(ctx context.Context, r sandbox.LeaseRef) (sandbox.LeaseUsage, error)
	// LeaseUsageHistory returns the retained usage samples, also of an ended lease. It does not ask the
	// backend. Errors: NotFound, Conflict (generation), Invalid.
	LeaseUsageHistory(ctx context.Context, q sandbox.UsageHistoryQuery) (sandbox.LeaseUsageHistory, error)
	// LeaseHealth checks whether the sandbox is usable. A problem is an answer, not an error. Errors:
	// NotFound, Conflict (generation).
	LeaseHealth(ctx context.Context, r sandbox.LeaseRef) (sandbox.LeaseHealth, error)
}
