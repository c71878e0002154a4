package ledgertest

import (
	"context"
	"database/sql"
	"path/filepath"
	"testing"

	"github.com/pressly/goose/v3"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/ledger"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/ledger/migrations"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/ledger/postgrestest"
)

// Databases returns the URL of a ledger that does not exist yet, on each database.
var Databases = map[string]func(t *testing.T) string{"SQLite": SQLiteURL, "PostgreSQL": PostgresURL}

// SQLiteURL returns the URL of an embedded ledger that does not exist yet.
func SQLiteURL(t *testing.T) string { return "sqlite://" + filepath.Join(t.TempDir(), "ledger.db") }

// PostgresURL returns the URL of a ledger in an empty database.
func PostgresURL(t *testing.T) string { return postgrestest.New(t) }

// Open opens a ledger until the end of the test.
func Open(t *testing.T, url string, o ledger.Options) *ledger.Store {
	t.Helper()
	s, err := ledger.Open(t.Context(), url, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s
}

// MakeEnvironment stores an environment in a transaction of its own.
func MakeEnvironment(t *testing.T, s *ledger.Store, id string) {
	t.Helper()
	if err := s.Write(t.Context(), func(tx *ledger.Tx) error { return Environment(tx, id) }); err != nil {
		t.Fatal(err)
	}
}

// ExecSQL runs a statement on the file of an embedded ledger.
func ExecSQL(t *testing.T, path, statement string) {
	t.Helper()
	db, err := sql.Open("sqlite", path)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = db.Close() }()
	if _, err := db.ExecContext(t.Context(), statement); err != nil {
		t.Fatal(err)
	}
}

// MigrateTo makes or upgrades a ledger as a program of an older schema does.
func MigrateTo(ctx context.Context, dialect goose.Dialect, pool *sql.DB, schema int64) error {
	p, err := migrations.Provider(dialect, pool)
	if err != nil {
		return err
	}
	_, err = p.UpTo(ctx, schema)
	return err
}
