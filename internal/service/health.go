package service

import (
	"context"

	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// Monitors looks at a lease's sandbox. It wakes nothing, records nothing, and is no activity.
type Monitors interface {
	// LeaseUsage samples what the sandbox uses. Errors: NotFound, LeaseEnded, Conflict (generation;
	// ReasonInvalidState while it is being made), Unavailable.
	LeaseUsage(ctx context.Context, r sandbox.LeaseRef) (sandbox.LeaseUsage, error)
	// LeaseUsageHistory returns what is kept of what the sandbox used, also of a lease that has ended. It asks no
	// backend. Errors: NotFound, Conflict (generation), Invalid.
	LeaseUsageHistory(ctx context.Context, q sandbox.UsageHistoryQuery) (sandbox.LeaseUsageHistory, error)
	// LeaseHealth checks whether the sandbox can be used. What is wrong with it is an answer, not an
	// error. Errors: NotFound, Conflict (generation).
	LeaseHealth(ctx context.Context, r sandbox.LeaseRef) (sandbox.LeaseHealth, error)
}
