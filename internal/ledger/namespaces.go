package ledger

import (
	"log/slog"

	"gorm.io/gorm"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/ledger/storage"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// namespacesSince is the first schema with namespaces for agents' snapshots.
const namespacesSince = 4

// maxKeysTold limits the keys in one event.
const maxKeysTold = 100

// reportNamespaces records, after an upgrade of the ledger, which agents' snapshots all tokens shared. They
// stay where they are.
func (tx *Tx) reportNamespaces(had int64, log *slog.Logger) error {
	if had >= namespacesSince {
		return nil
	}
	shared := tx.db.Table("saved_states").Where("key = agent_did")
	var told sandbox.SnapshotsKept
	if err := shared.Session(&gorm.Session{}).Count(&told.Snapshots).Error; err != nil {
		return storage.Error("counting the snapshots of agents", err)
	}
	if told.Snapshots == 0 {
		return nil
	}
	if err := shared.Session(&gorm.Session{}).Order("key").Limit(maxKeysTold).Pluck("key", &told.Keys).Error; err != nil {
		return storage.Error("reading the snapshots of agents", err)
	}
	log.Warn("ledger: agents' snapshots that all tokens shared now belong to the operator; "+
		"the lease of a limited token can start from one that was saved in an environment that the token may touch",
		"states", told.Snapshots, "event", sandbox.EventSnapshotsKept)
	return tx.append(&Event{Type: sandbox.EventSnapshotsKept}, told)
}
