package storage

import "gorm.io/gorm/clause"

// InsertBatch limits the rows, and so the variables, of one INSERT of GORM.
const InsertBatch = 200

// AddTo makes an INSERT add to existing rows of a table.
func AddTo(table string, key []string, columns ...string) clause.OnConflict {
	var do clause.OnConflict
	for _, name := range key {
		do.Columns = append(do.Columns, clause.Column{Name: name})
	}
	sums := make(map[string]any, len(columns))
	for _, c := range columns {
		sums[c] = clause.Expr{SQL: table + "." + c + " + excluded." + c}
	}
	do.DoUpdates = clause.Assignments(sums)
	return do
}
