package ledger

import (
	"context"
	"errors"

	"gorm.io/gorm"
)

// OnQuery calls seen for each query of the store's readers.
func (s *Store) OnQuery(ctx context.Context, seen func(sql string, vars []any)) error {
	record := func(db *gorm.DB) { seen(db.Statement.SQL.String(), db.Statement.Vars) }
	return s.Read(ctx, func(tx *Tx) error {
		return tx.db.Callback().Query().After("gorm:query").Register("test:on_query", record)
	})
}

// OnRead calls seen for each statement that reads, including those of transactions that write.
func (s *Store) OnRead(ctx context.Context, seen func(sql string, vars []any)) error {
	record := func(db *gorm.DB) { seen(db.Statement.SQL.String(), db.Statement.Vars) }
	listen := func(tx *Tx) error {
		return errors.Join(tx.db.Callback().Query().After("gorm:query").Register("test:on_read", record),
			tx.db.Callback().Row().After("gorm:row").Register("test:on_read", record))
	}
	return errors.Join(s.Read(ctx, listen), s.Write(ctx, listen))
}

// SteppedTimes are the columns that move with the clock, as table.column.
func SteppedTimes() (columns []string) {
	for _, m := range steppedTimes {
		for _, column := range m.columns {
			columns = append(columns, m.table+"."+column)
		}
	}
	return columns
}
