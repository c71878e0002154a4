package storage

import (
	"context"
	"database/sql"

	"github.com/pressly/goose/v3"
	"gorm.io/gorm"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/ledger/micro"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/ledger/migrations"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// identity is the one row of ledgers.
type identity struct {
	One       int `gorm:"primaryKey"`
	ID        string
	MinReader int64
	CreatedAt micro.Time `gorm:"autoCreateTime:false"`
	// DetailSince: earlier usage is kept only by UTC day.
	DetailSince micro.Time
	// PurgedEventID: not all events up to this one are retained.
	PurgedEventID int64
	// ClockSteps is the sum of all steps of the clock, ClockSeenAt the latest recorded time.
	ClockSteps  micro.Span
	ClockSeenAt micro.Time
	// BackedUpAt is when the backup was taken, RestoredAt when the ledger was last restored.
	BackedUpAt micro.Time
	RestoredAt micro.Time
	// GenerationFloor: every later generation is above it.
	GenerationFloor int64
}

func (identity) TableName() string { return "ledgers" }

// migrate applies missing migrations and returns the ledger's id. The caller must hold a lock.
func migrate(ctx context.Context, dialect goose.Dialect, pool *sql.DB, db *gorm.DB, o Options) (string, error) {
	p, err := migrations.Provider(dialect, pool)
	if err != nil {
		return "", sandbox.Errorf(sandbox.Internal, "reading the ledger's migrations: %w", err)
	}
	have, err := p.GetDBVersion(ctx)
	if err != nil {
		return "", sandbox.Errorf(sandbox.Unavailable, "reading the ledger's schema version: %w", err)
	}
	if have < migrations.Newest {
		if _, err := p.Up(ctx); err != nil {
			return "", sandbox.Errorf(sandbox.Unavailable, "migrating the ledger from schema %d to %d: %w",
				have, migrations.Newest, err)
		}
	}
	self, err := identify(ctx, db, o)
	if err != nil {
		return "", err
	}
	if self.MinReader > migrations.Newest {
		return "", sandbox.Errorf(sandbox.Conflict,
			"the ledger needs a program of schema %d or newer, but this one has schema %d: upgrade this program",
			self.MinReader, migrations.Newest)
	}
	if self.BackedUpAt != 0 {
		return self.ID, activate(ctx, db, o, self.BackedUpAt)
	}
	return self.ID, nil
}

// identify returns the ledger's identity. It creates it unless the ledger has one: the process that created the tables
// may have died before.
func identify(ctx context.Context, db *gorm.DB, o Options) (identity, error) {
	var self identity
	found := db.WithContext(ctx).Limit(1).Find(&self)
	if found.Error != nil {
		return self, Error("reading the ledger's identity", found.Error)
	}
	if found.RowsAffected > 0 {
		return self, nil
	}
	self = identity{
		One: 1, ID: o.IDs(sandbox.LedgerIDLength), MinReader: migrations.MinReader, CreatedAt: micro.At(o.Now()),
	}
	return self, Error("creating the ledger's identity", db.WithContext(ctx).Create(&self).Error)
}

// activate makes the package above turn a backup of a given time into a ledger. A step of the clock since the backup
// comes first, so that it does not move the times that are written here.
func activate(ctx context.Context, db *gorm.DB, o Options, backedUpAt micro.Time) error {
	return db.WithContext(ctx).Transaction(func(db *gorm.DB) error {
		s := newSession(o.begin, Tx{db: db, Now: micro.At(o.Now())})
		if c := newClock(o); c != nil {
			if _, err := c.check(s.core()); err != nil {
				return err
			}
		}
		if err := s.Restored(backedUpAt); err != nil {
			return err
		}
		return s.Flush()
	})
}
