package leasing

import (
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/output"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/snapshots"
)

// StateStore keeps archives of /data, and what commands have written; see snapshotstore.Store, whose contract
// it is.
type StateStore interface {
	snapshots.Store
	output.Store
}
