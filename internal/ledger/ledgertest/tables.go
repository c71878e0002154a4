package ledgertest

import (
	"context"
	"database/sql"
	"errors"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/ledger/storage"
)

// CreateFile creates a ledger's file with its tables and no identity. Opening it gives it one. Creating the tables
// takes tests longer than most of what they test.
func CreateFile(t testing.TB, path string) {
	t.Helper()
	file, err := tables()
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, file, 0o600); err != nil {
		t.Fatal(err)
	}
}

// tables is the content of such a file.
var tables = sync.OnceValues(func() (content []byte, err error) {
	dir, err := os.MkdirTemp("", "ledger")
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	path := filepath.Join(dir, "ledger.db")
	ctx := context.Background()
	err = storage.CreateTables(ctx, path, storage.Options{Now: time.Now, IDs: func(int) string { return "none" }})
	if err != nil {
		return nil, err
	}
	db, err := sql.Open("sqlite", path)
	if err != nil {
		return nil, err
	}
	_, err = db.ExecContext(ctx, "DELETE FROM ledgers")
	if err := errors.Join(err, db.Close()); err != nil {
		return nil, err
	}
	return os.ReadFile(path)
})
