package sqlite

import (
	"errors"
	"strconv"

	"gorm.io/gorm"
	"gorm.io/gorm/callbacks"
	"gorm.io/gorm/clause"
	"gorm.io/gorm/logger"
	"gorm.io/gorm/migrator"
	"gorm.io/gorm/schema"
	"modernc.org/sqlite"
	sqlite3 "modernc.org/sqlite/lib"
)

// dialect makes GORM use SQLite. It creates no tables: the migrations do.
type dialect struct{ pool pool }

// Name implements gorm.Dialector.
func (dialect) Name() string { return "sqlite" }

// Initialize implements gorm.Dialector.
func (d dialect) Initialize(db *gorm.DB) error {
	db.ConnPool = d.pool
	callbacks.RegisterDefaultCallbacks(db, &callbacks.Config{
		CreateClauses:        []string{"INSERT", "VALUES", "ON CONFLICT", "RETURNING"},
		UpdateClauses:        []string{"UPDATE", "SET", "FROM", "WHERE", "RETURNING"},
		DeleteClauses:        []string{"DELETE", "FROM", "WHERE", "RETURNING"},
		LastInsertIDReversed: true,
	})
	db.ClauseBuilders["LIMIT"] = literalLimit
	return nil
}

// literalLimit writes a limit as a number: SQLite compiles a statement again each time a LIMIT parameter is
// bound, to plan for its value.
func literalLimit(c clause.Clause, b clause.Builder) {
	limit, ok := c.Expression.(clause.Limit)
	if !ok {
		c.Build(b)
		return
	}
	rows := -1 // all
	if limit.Limit != nil && *limit.Limit >= 0 {
		rows = *limit.Limit
	}
	_, _ = b.WriteString("LIMIT " + strconv.Itoa(rows)) // a strings.Builder does not fail
	if limit.Offset > 0 {
		_, _ = b.WriteString(" OFFSET " + strconv.Itoa(limit.Offset))
	}
}

// Migrator implements gorm.Dialector.
func (d dialect) Migrator(db *gorm.DB) gorm.Migrator {
	return migrator.Migrator{Config: migrator.Config{DB: db, Dialector: d}}
}

// DataTypeOf implements gorm.Dialector.
func (dialect) DataTypeOf(f *schema.Field) string { return string(f.DataType) }

// DefaultValueOf implements gorm.Dialector: in an INSERT, an auto-increment column gets NULL.
func (dialect) DefaultValueOf(*schema.Field) clause.Expression { return clause.Expr{SQL: "NULL"} }

// BindVarTo implements gorm.Dialector.
func (dialect) BindVarTo(w clause.Writer, _ *gorm.Statement, _ any) { _ = w.WriteByte('?') }

// QuoteTo implements gorm.Dialector. Names come from the models: letters, digits, '_', and '.' between table
// and column.
func (dialect) QuoteTo(w clause.Writer, name string) {
	_ = w.WriteByte('`') // the writer is a strings.Builder
	for _, c := range []byte(name) {
		switch c {
		case '.':
			_, _ = w.WriteString("`.`")
		case '`':
			_, _ = w.WriteString("``")
		default:
			_ = w.WriteByte(c)
		}
	}
	_ = w.WriteByte('`')
}

// Explain implements gorm.Dialector.
func (dialect) Explain(query string, values ...any) string {
	return logger.ExplainSQL(query, nil, `"`, values...)
}

// Translate implements gorm.ErrorTranslator.
func (dialect) Translate(err error) error {
	if e, ok := errors.AsType[*sqlite.Error](err); ok {
		switch e.Code() {
		case sqlite3.SQLITE_CONSTRAINT_UNIQUE, sqlite3.SQLITE_CONSTRAINT_PRIMARYKEY:
			return gorm.ErrDuplicatedKey
		case sqlite3.SQLITE_CONSTRAINT_FOREIGNKEY:
			return gorm.ErrForeignKeyViolated
		}
	}
	return err
}
