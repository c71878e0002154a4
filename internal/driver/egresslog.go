package driver

import (
	"context"

	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// EgressLogger tells what restricted sandboxes tried to reach. It starts and wakes nothing.
type EgressLogger interface {
	// EgressLogs names the environments of a ledger that have a gateway on this instance.
	EgressLogs(ctx context.Context, ledgerID string) ([]EnvironmentRef, error)
	// EgressLog returns the oldest lines after a position, some at a time; none when there are none yet.
	// Errors: Unavailable while the gateway is not there.
	EgressLog(ctx context.Context, ref EnvironmentRef, after sandbox.EgressPosition) ([]sandbox.EgressRecord, error)
}
