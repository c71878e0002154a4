package ledger

import (
	"slices"
	"strings"
)

// bulkRows bounds the rows, and so the variables and the texts, of one statement.
const bulkRows = 128

// bulk is a statement over many rows at once: what a commit of many small writes spends its time on is
// statements, and not what they carry.
type bulk struct {
	// head and tail stand before and after the list of rows, each of which is written as row.
	head, row, tail string
}

// insertInto is the bulk that stores rows of a table.
func insertInto(table string, columns ...string) bulk {
	return bulk{
		head: "INSERT INTO " + table + " (" + strings.Join(columns, ", ") + ") VALUES ",
		row:  "(?" + strings.Repeat(", ?", len(columns)-1) + ")",
	}
}

// onlyNew leaves out rows whose key is taken.
func (b bulk) onlyNew() bulk {
	b.tail = " ON CONFLICT DO NOTHING"
	return b
}

// bulkExec runs a bulk over rows, and returns how many rows of the table it touched. values appends
// those of one row.
func bulkExec[T any](tx *Tx, what string, b bulk, rows []T, values func(list []any, row *T) []any) (int64, error) {
	var touched int64
	for some := range slices.Chunk(rows, bulkRows) {
		var list []any
		for i := range some {
			list = values(list, &some[i])
		}
		n, err := rowCount(what, tx.db.Exec(b.head+b.row+strings.Repeat(", "+b.row, len(some)-1)+b.tail, list...))
		if err != nil {
			return touched, err
		}
		touched += n
	}
	return touched, nil
}
