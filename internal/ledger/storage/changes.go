package storage

import (
	"bytes"
	"context"
	"database/sql/driver"
	"reflect"
	"strings"

	"gorm.io/gorm"
	"gorm.io/gorm/schema"
)

// changes holds rows as a transaction has read or stored them, so that a save stores only the changed columns. GORM
// would store all columns, and SQLite would then rewrite every index of the table.
type changes map[any]stored

// stored is a row's content in the database: the value of each field of its table.
type stored []driver.Value

// know records a row as it was read. For rows that are only read, this is not worth its cost.
func know(h Handle, row any) error {
	tx := h.core()
	if tx.changes == nil {
		return nil
	}
	table, err := tableOf(tx.db, row)
	if err != nil {
		return err
	}
	tx.changes[row], err = table.values(tx.db.Statement.Context, row)
	return err
}

// Save stores a row: the changed columns if this transaction has read or stored it, otherwise all.
func Save(h Handle, row any) error {
	tx := h.core()
	old, known := tx.changes[row]
	if !known {
		return Error("writing to the ledger", tx.db.Save(row).Error)
	}
	table, err := tableOf(tx.db, row)
	if err != nil {
		return err
	}
	now, err := table.values(tx.db.Statement.Context, row)
	if err != nil {
		return err
	}
	query, values := table.update(old, now)
	if len(values) == 0 {
		return nil
	}
	if _, err := exec(tx, query, values); err != nil {
		return Error("writing to the ledger", err)
	}
	tx.changes[row] = now
	return nil
}

// table is GORM's description of a row's table.
type table struct {
	name   string
	fields []*schema.Field
}

// tableOf returns the table of a row, a pointer. GORM caches it.
func tableOf(db *gorm.DB, row any) (table, error) {
	s := gorm.Statement{DB: db}
	if err := s.Parse(row); err != nil {
		return table{}, Error("looking at a row of the ledger", err)
	}
	return table{s.Schema.Table, s.Schema.Fields}, nil
}

// values returns the values of a row's fields, as types of database/sql/driver.
func (t table) values(ctx context.Context, row any) (stored, error) {
	at := reflect.ValueOf(row).Elem()
	values := make(stored, len(t.fields))
	for i, f := range t.fields {
		if f.DBName == "" {
			continue
		}
		v, _ := f.ValueOf(ctx, at)
		var err error
		if values[i], err = driver.DefaultParameterConverter.ConvertValue(v); err != nil {
			return nil, Error("looking at "+t.name+"."+f.DBName, err)
		}
	}
	return values, nil
}

// update returns the statement that stores a row's changes, without values if there are none.
func (t table) update(old, now stored) (query string, values []any) {
	var set, where strings.Builder
	var keys []any
	for i, f := range t.fields {
		switch {
		case f.PrimaryKey:
			where.WriteString(" AND " + f.DBName + " = ?")
			keys = append(keys, old[i])
		case f.Updatable && f.DBName != "" && !same(old[i], now[i]):
			set.WriteString(", " + f.DBName + " = ?")
			values = append(values, now[i])
		}
	}
	if len(values) == 0 {
		return "", nil
	}
	return "UPDATE " + t.name + " SET" + set.String()[1:] + " WHERE" + where.String()[len(" AND"):], append(values,
		keys...)
}

func same(a, b driver.Value) bool {
	x, isBytes := a.([]byte)
	if y, ok := b.([]byte); isBytes || ok {
		return isBytes && ok && bytes.Equal(x, y) && (x == nil) == (y == nil)
	}
	return a == b
}

// IsKnown reports whether a transaction has read or stored a row.
func IsKnown(tx Handle, row any) bool {
	_, known := tx.core().changes[row]
	return known
}
