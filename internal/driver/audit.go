package driver

import (
	"context"

	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// Auditor inspects how sandboxes are shut in, as they are now and not as they were asked for.
type Auditor interface {
	// Audit holds every sandbox with the ledger's label on this instance, and what sandboxes go out
	// through, against every rule for it. It starts
	// and changes nothing.
	Audit(ctx context.Context, ledgerID string) ([]sandbox.AuditCheck, error)
}
