package backupfile

import (
	"context"
	"database/sql"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/ledger/migrations"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// querier is a transaction of database/sql.
type querier interface {
	QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error)
}

// columnsOf returns the columns of a table in an embedded ledger, without generated ones.
func columnsOf(ctx context.Context, db querier, table string) (names []string, err error) {
	rows, err := db.QueryContext(ctx, "SELECT name FROM pragma_table_xinfo(?) WHERE hidden = 0 ORDER BY cid", table)
	if err != nil {
		return nil, err
	}
	defer func() { _ = rows.Close() }() // Err reports all errors
	for rows.Next() {
		var name string
		if err := rows.Scan(&name); err != nil {
			return nil, err
		}
		names = append(names, name)
	}
	return names, rows.Err()
}

// rowsOf reads all rows of a table: integers, texts and bytes, which are the same in both databases.
func rowsOf(ctx context.Context, db querier, table string, columns []string) (*rowSource, error) {
	rows, err := db.QueryContext(ctx, "SELECT "+strings.Join(columns, ", ")+" FROM "+table) //nolint:gosec,rowserrcheck // the schema's own names; rowSource.Err is asked
	if err != nil {
		return nil, err
	}
	s := &rowSource{rows: rows, values: make([]any, len(columns)), into: make([]any, len(columns))}
	for i := range s.values {
		s.into[i] = &s.values[i]
	}
	return s, nil
}

// rowSource provides rows for pgx to copy.
type rowSource struct {
	rows         *sql.Rows
	values, into []any
	err          error
}

var _ pgx.CopyFromSource = (*rowSource)(nil)

func (s *rowSource) Next() bool {
	if s.err != nil || !s.rows.Next() {
		return false
	}
	s.err = s.rows.Scan(s.into...)
	return s.err == nil
}

// Values returns the row, which is valid until the next call.
func (s *rowSource) Values() ([]any, error) { return s.values, nil }

func (s *rowSource) Err() error {
	if s.err != nil {
		return s.err
	}
	return s.rows.Err()
}

func (s *rowSource) close() { _ = s.rows.Close() } // Err reports all errors

// copyFromPostgres fills the empty tables of an embedded ledger from a PostgreSQL.
func copyFromPostgres(ctx context.Context, from querier, to *sql.Tx) error {
	for _, table := range migrations.Tables {
		if err := insertAll(ctx, from, to, table); err != nil {
			return sandbox.Errorf(sandbox.Unavailable, "copying the ledger's table %s: %w", table, err)
		}
	}
	for _, table := range migrations.Numbered {
		var last int64
		err := scanOne(ctx, from, &last, "SELECT CASE WHEN is_called THEN last_value ELSE 0 END FROM "+table+"_id_seq")
		if err == nil {
			_, err = to.ExecContext(ctx, "DELETE FROM sqlite_sequence WHERE name = ?", table)
		}
		if err == nil {
			_, err = to.ExecContext(ctx, "INSERT INTO sqlite_sequence (name, seq) VALUES (?, ?)", table, last)
		}
		if err != nil {
			return sandbox.Errorf(sandbox.Unavailable, "copying the last number of the ledger's table %s: %w", table, err)
		}
	}
	return nil
}

func insertAll(ctx context.Context, from querier, to *sql.Tx, table string) error {
	columns, err := columnsOf(ctx, to, table)
	if err != nil {
		return err
	}
	// #nosec G202 -- the schema's own names
	insert, err := to.PrepareContext(ctx,
		"INSERT INTO "+table+" ("+strings.Join(columns, ", ")+") VALUES (?"+strings.Repeat(", ?", len(columns)-1)+")")
	if err != nil {
		return err
	}
	defer func() { _ = insert.Close() }() // the end of the transaction closes it too
	rows, err := rowsOf(ctx, from, table, columns)
	if err != nil {
		return err
	}
	defer rows.close()
	for rows.Next() {
		if _, err := insert.ExecContext(ctx, rows.values...); err != nil {
			return err
		}
	}
	return rows.Err()
}

// copyToPostgres fills the empty tables of a PostgreSQL from an embedded ledger.
func copyToPostgres(ctx context.Context, from querier, to pgx.Tx) error {
	for _, table := range migrations.Tables {
		if err := copyTable(ctx, from, to, table); err != nil {
			return sandbox.Errorf(sandbox.Unavailable, "copying the ledger's table %s: %w", table, err)
		}
	}
	for _, table := range migrations.Numbered {
		var last int64
		err := scanOne(ctx, from, &last, "SELECT coalesce(max(seq), 0) FROM sqlite_sequence WHERE name = '"+table+"'")
		if err == nil && last > 0 {
			_, err = to.Exec(ctx, "SELECT setval($1::regclass, $2)", table+"_id_seq", last)
		}
		if err != nil {
			return sandbox.Errorf(sandbox.Unavailable, "copying the last number of the ledger's table %s: %w", table, err)
		}
	}
	return nil
}

func copyTable(ctx context.Context, from querier, to pgx.Tx, table string) error {
	columns, err := columnsOf(ctx, from, table)
	if err != nil {
		return err
	}
	rows, err := rowsOf(ctx, from, table, columns)
	if err != nil {
		return err
	}
	defer rows.close()
	_, err = to.CopyFrom(ctx, pgx.Identifier{table}, columns, rows)
	return err
}

// scanOne reads the single value of a query.
func scanOne(ctx context.Context, db querier, into any, query string) error {
	rows, err := db.QueryContext(ctx, query)
	if err != nil {
		return err
	}
	defer func() { _ = rows.Close() }() // Err reports all errors
	for rows.Next() {
		if err := rows.Scan(into); err != nil {
			return err
		}
	}
	return rows.Err()
}
