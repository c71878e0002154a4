package storage

import (
	"slices"
	"strconv"
	"strings"

	"gorm.io/gorm"
)

// bulkRows limits the rows, and so the variables and texts, of one statement.
const bulkRows = 128

// Bulk is a statement over many rows: a commit of many small writes spends its time on statements, not on
// their data.
type Bulk struct {
	// Head and Tail surround the list of rows, each of which is written as Row.
	Head, Row, Tail string
}

// InsertInto returns the bulk that inserts rows into a table.
func InsertInto(table string, columns ...string) Bulk {
	return Bulk{
		Head: "INSERT INTO " + table + " (" + strings.Join(columns, ", ") + ") VALUES ",
		Row:  "(?" + strings.Repeat(", ?", len(columns)-1) + ")",
	}
}

// OnlyNew skips rows whose key exists.
func (b Bulk) OnlyNew() Bulk {
	b.Tail = " ON CONFLICT DO NOTHING"
	return b
}

// statement returns the statement for n rows.
func (b Bulk) statement(n int) string {
	return b.Head + b.Row + strings.Repeat(", "+b.Row, n-1) + b.Tail
}

// BulkExec runs a bulk over rows, and returns the number of affected rows. values appends the values of one
// row, as types of database/sql/driver: other types are converted by reflection, one by one.
func BulkExec[T any](tx Handle, what string, b Bulk, rows []T, values func(list []any, row *T) []any) (int64, error) {
	var touched int64
	for some := range slices.Chunk(rows, bulkRows) {
		list := make([]any, 0, len(some)*strings.Count(b.Row, "?"))
		for i := range some {
			list = values(list, &some[i])
		}
		n, err := exec(tx, b.statement(len(some)), list)
		if err != nil {
			return touched, Error(what, err)
		}
		touched += n
	}
	return touched, nil
}

// exec runs a statement with values of database/sql/driver types, without GORM: GORM parses each '?' and its
// value, which costs as much as storing them. It returns the number of affected rows.
func exec(h Handle, query string, values []any) (int64, error) {
	tx := h.core()
	s := tx.db.Statement
	if tx.db.Name() == "postgres" {
		query = withDollars(query)
	}
	done, err := s.ConnPool.ExecContext(s.Context, query, values...)
	if err != nil {
		if t, ok := tx.db.Dialector.(gorm.ErrorTranslator); ok {
			err = t.Translate(err)
		}
		return 0, err
	}
	return done.RowsAffected()
}

// withDollars writes parameters as PostgreSQL does: $1, $2 and so on. The query has no other '?'.
func withDollars(query string) string {
	parts := strings.Split(query, "?")
	var b strings.Builder
	for i, part := range parts {
		if i > 0 {
			b.WriteString("$" + strconv.Itoa(i))
		}
		b.WriteString(part)
	}
	return b.String()
}
