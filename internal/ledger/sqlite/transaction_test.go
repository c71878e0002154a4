package sqlite_test

import (
	"context"
	"net/url"
	"path/filepath"
	"runtime"
	"testing"
	"time"

	"gorm.io/gorm"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/ledger/sqlite"
)

// oneConnection opens a file with the tables of these tests, through a pool of one connection.
func oneConnection(t *testing.T) *gorm.DB {
	t.Helper()
	db, err := sqlite.Dial(filepath.Join(t.TempDir(), "ledger.db"),
		url.Values{"_txlock": {"immediate"}, "_pragma": {"foreign_keys(1)"}}, 1)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		pool, err := db.DB()
		if err != nil {
			t.Fatal(err)
		}
		if err := pool.Close(); err != nil {
			t.Error(err)
		}
	})
	run(t, db, "CREATE TABLE games (id TEXT PRIMARY KEY)")
	run(t, db, "CREATE TABLE moves (game TEXT REFERENCES games DEFERRABLE INITIALLY DEFERRED)")
	return db
}

func run(t *testing.T, db *gorm.DB, query string) {
	t.Helper()
	if err := db.Exec(query).Error; err != nil {
		t.Fatal(err)
	}
}

// begin begins a transaction. A connection that is not returned to the pool lets it fail.
func begin(t *testing.T, db *gorm.DB) *gorm.DB {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
	t.Cleanup(cancel)
	tx := db.WithContext(ctx).Begin()
	if tx.Error != nil {
		t.Fatal(tx.Error)
	}
	return tx
}

func games(t *testing.T, db *gorm.DB) (n int64) {
	t.Helper()
	if err := db.Table("games").Count(&n).Error; err != nil {
		t.Fatal(err)
	}
	return n
}

func TestATransactionEndsOnce(t *testing.T) {
	db := oneConnection(t)
	tx := begin(t, db)
	run(t, tx, "INSERT INTO games VALUES ('catan-1')")
	if err := tx.Commit().Error; err != nil {
		t.Fatal(err)
	}
	if err := tx.Rollback().Error; err == nil {
		t.Error("a transaction was rolled back after its commit")
	}
	if n := games(t, db); n != 1 {
		t.Errorf("after the commit there are %d games, want 1", n)
	}
	tx = begin(t, db)
	run(t, tx, "INSERT INTO games VALUES ('catan-2')")
	if err := tx.Rollback().Error; err != nil {
		t.Fatal(err)
	}
	if err := tx.Commit().Error; err == nil {
		t.Error("a transaction was committed after its rollback")
	}
	if n := games(t, db); n != 1 {
		t.Errorf("after the rollback there are %d games, want 1", n)
	}
}

func TestACommitThatFailsIsRolledBack(t *testing.T) {
	db := oneConnection(t)
	tx := begin(t, db)
	run(t, tx, "INSERT INTO games VALUES ('catan-1')")
	run(t, tx, "INSERT INTO moves VALUES ('no such game')")
	if err := tx.Commit().Error; err == nil {
		t.Fatal("a commit succeeded against a foreign key")
	}
	tx = begin(t, db)
	defer tx.Rollback()
	if n := games(t, tx); n != 0 {
		t.Errorf("the failed commit left %d games", n)
	}
}

func TestAConnectionThatIsLeftInATransactionIsReplaced(t *testing.T) {
	db := oneConnection(t)
	run(t, db, "BEGIN")
	run(t, db, "INSERT INTO games VALUES ('catan-1')")
	if tx := db.Begin(); tx.Error == nil {
		t.Fatal("a transaction began within another one")
	}
	tx := begin(t, db)
	defer tx.Rollback()
	if n := games(t, tx); n != 0 {
		t.Errorf("the transaction that was left left %d games", n)
	}
}

func TestAQueryInATransactionStartsNoGoroutine(t *testing.T) {
	db := oneConnection(t)
	before := runtime.NumGoroutine()
	tx := db.WithContext(context.Background()).Begin()
	if tx.Error != nil {
		t.Fatal(tx.Error)
	}
	defer tx.Rollback()
	rows, err := tx.Table("games").Rows()
	if err != nil {
		t.Fatal(err)
	}
	if n := runtime.NumGoroutine() - before; n > 0 {
		t.Errorf("%d goroutines more", n)
	}
	if err := rows.Close(); err != nil {
		t.Error(err)
	}
}
