package driver

import (
	"context"

	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// Auditor inspects the actual confinement of sandboxes, not the requested one.
type Auditor interface {
	// Audit checks every sandbox with the ledger's label on this instance, and the gateways and relays,
	// against all rules that apply. It starts and changes nothing.
	Audit(ctx context.Context, ledgerID string) ([]sandbox.AuditCheck, error)
}
