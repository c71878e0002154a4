package ledger

import (
	"context"

	"gorm.io/gorm"

	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// namespacesSince is the first schema whose programs keep the states of agents in namespaces.
const namespacesSince = 4

// maxKeysTold bounds the keys in one event.
const maxKeysTold = 100

// tellNamespaces records, in a ledger that was upgraded, which saved states of agents were shared by all tokens.
// They stay where they are.
func tellNamespaces(ctx context.Context, db *gorm.DB, had int64, o Options) error {
	if had == 0 || had >= namespacesSince {
		return nil
	}
	return db.WithContext(ctx).Transaction(func(db *gorm.DB) error {
		tx := &Tx{db: db, Now: At(o.Now())}
		shared := db.Model(&SavedState{}).Where("key = agent_did")
		var told sandbox.StatesKept
		if err := shared.Session(&gorm.Session{}).Count(&told.States).Error; err != nil {
			return unavailable("counting the saved states of agents", err)
		}
		if told.States == 0 {
			return nil
		}
		if err := shared.Session(&gorm.Session{}).Order("key").Limit(maxKeysTold).Pluck("key", &told.Keys).Error; err != nil {
			return unavailable("reading the saved states of agents", err)
		}
		o.Logger.Warn("ledger: saved states of agents, which all tokens shared, belong to the operator now; "+
			"a token limited to environments begins with one that was saved in an environment that it may touch",
			"states", told.States, "event", sandbox.EventStatesKept)
		if err := tx.append(&Event{Type: sandbox.EventStatesKept}, told); err != nil {
			return err
		}
		return tx.flushEvents()
	})
}
