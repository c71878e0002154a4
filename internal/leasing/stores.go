package leasing

import (
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/output"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/snapshots"
)

// ObjectStore stores archives of /data, and output of commands. See snapshotstore.Store for the contract.
type ObjectStore interface {
	snapshots.Store
	output.Store
}
