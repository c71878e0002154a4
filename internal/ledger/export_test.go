package ledger

import "gorm.io/gorm"

// OnQuery calls seen with each query that the store's readers ask.
func (s *Store) OnQuery(seen func(sql string, vars []any)) error {
	record := func(db *gorm.DB) { seen(db.Statement.SQL.String(), db.Statement.Vars) }
	return s.reads.Callback().Query().After("gorm:query").Register("test:on_query", record)
}
