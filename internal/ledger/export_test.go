package ledger

import (
	"strconv"

	"gorm.io/gorm"
)

// OnQuery calls seen with each query that the store's readers ask.
func (s *Store) OnQuery(seen func(sql string, vars []any)) error {
	record := func(db *gorm.DB) { seen(db.Statement.SQL.String(), db.Statement.Vars) }
	return s.reads.Callback().Query().After("gorm:query").Register("test:on_query", record)
}

// BoundPages makes a SQLite ledger's disk full at so many pages of 4 KiB, and at no fewer than there are now.
func (s *Store) BoundPages(pages int64) error {
	return s.writes.Raw("PRAGMA max_page_count = " + strconv.FormatInt(pages, 10)).Scan(&pages).Error
}

// Tables are what a backup copies between databases.
var Tables = tables
