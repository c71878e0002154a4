package driver

import (
	"context"

	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// EgressLogger reads the log of what restricted sandboxes tried to reach. It starts and wakes nothing.
type EgressLogger interface {
	// EgressLogs returns the environments of a ledger that have a log on this instance. If some do not
	// answer, it returns the others and an error.
	EgressLogs(ctx context.Context, ledgerID string) ([]EnvironmentRef, error)
	// EgressLog returns a page of the oldest lines after a position, empty if there are none yet. Errors:
	// Unavailable while the keeper of the log is down.
	EgressLog(ctx context.Context, ref EnvironmentRef, after sandbox.GatewayPosition) ([]sandbox.EgressRecord, error)
}
