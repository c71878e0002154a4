package ledger

import (
	"context"
	"database/sql"
	"errors"
	"strconv"

	"github.com/pressly/goose/v3"
	"gorm.io/gorm"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/ledger/migrations"
)

// OnQuery calls seen with each query that the store's readers ask.
func (s *Store) OnQuery(seen func(sql string, vars []any)) error {
	record := func(db *gorm.DB) { seen(db.Statement.SQL.String(), db.Statement.Vars) }
	return s.reads.Callback().Query().After("gorm:query").Register("test:on_query", record)
}

// OnRead calls seen with each statement that reads, also those of transactions that write.
func (s *Store) OnRead(seen func(sql string, vars []any)) error {
	record := func(db *gorm.DB) { seen(db.Statement.SQL.String(), db.Statement.Vars) }
	var failed []error
	for _, db := range []*gorm.DB{s.reads, s.writes} {
		failed = append(failed, db.Callback().Query().After("gorm:query").Register("test:on_read", record),
			db.Callback().Row().After("gorm:row").Register("test:on_read", record))
	}
	return errors.Join(failed...)
}

// BoundPages makes a SQLite ledger's disk full at so many pages of 4 KiB, and at no fewer than there are now.
func (s *Store) BoundPages(pages int64) error {
	return s.writes.Raw("PRAGMA max_page_count = " + strconv.FormatInt(pages, 10)).Scan(&pages).Error
}

// Tables are what a backup copies between databases.
var Tables = migrations.Tables

// MigrateTo makes or upgrades a ledger as a program of an older schema does.
func MigrateTo(ctx context.Context, dialect goose.Dialect, pool *sql.DB, schema int64) error {
	p, err := migrations.Provider(dialect, pool)
	if err != nil {
		return err
	}
	_, err = p.UpTo(ctx, schema)
	return err
}

// Synchronous returns SQLite's setting of when what is written reaches the disk, as the store's writer has it.
func (s *Store) Synchronous() (mode int, err error) {
	err = s.writes.Raw("PRAGMA synchronous").Scan(&mode).Error
	return mode, err
}
