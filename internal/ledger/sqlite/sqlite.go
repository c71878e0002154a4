// Package sqlite is SQLite for the ledger: connections that cache compiled statements, its dialect for GORM, and the
// files of an embedded ledger.
package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"net/url"
	"strings"

	"gorm.io/gorm"
	"gorm.io/gorm/logger"
	"modernc.org/sqlite"
	sqlite3 "modernc.org/sqlite/lib"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/ledger/migrations"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

const (
	// BusyTimeout is how long a writer waits for another process's transaction, in milliseconds.
	BusyTimeout = "15000"
	// CheckCells makes SQLite check each page when it reads it, so that it finds damage sooner.
	CheckCells = "cell_size_check(1)"
)

// Dial opens a pool of connections to a file. The query holds SQLite's settings, such as _pragma.
func Dial(path string, q url.Values, connections int) (*gorm.DB, error) {
	dsn := url.URL{Scheme: "file", Opaque: (&url.URL{Path: path}).EscapedPath(), RawQuery: q.Encode()}
	open, err := sqlite.NewConnector(dsn.String())
	if err != nil {
		return nil, err
	}
	all := sql.OpenDB(keepingConnector{open})
	all.SetMaxOpenConns(connections)
	all.SetMaxIdleConns(connections)
	// GORM's prepared statements end with their transaction, and all of ours are in one.
	db, err := gorm.Open(dialect{pool{all, all, strings.TrimSpace("BEGIN " + q.Get("_txlock"))}}, &gorm.Config{
		SkipDefaultTransaction: true,
		TranslateError:         true,
		NamingStrategy:         migrations.Naming{},
		Logger:                 logger.Discard,
	})
	if err == nil {
		err = all.Ping()
	}
	if err != nil {
		return nil, errors.Join(err, all.Close())
	}
	return db, nil
}

// OpenFile returns a connection to an embedded ledger's file without changing it. Errors: Invalid.
func OpenFile(file string, q url.Values) (*sql.DB, error) {
	db, err := Dial(file, q, 1)
	if err != nil {
		return nil, sandbox.Errorf(sandbox.Invalid, "opening %s: %w", file, err)
	}
	return db.DB()
}

// IsFull reports whether SQLite found its disk full.
func IsFull(err error) bool {
	failed, ok := errors.AsType[*sqlite.Error](err)
	return ok && (failed.Code()&0xff == sqlite3.SQLITE_FULL || failed.Code() == sqlite3.SQLITE_IOERR_SHMSIZE)
}

// IsDamaged reports whether SQLite found an invalid page.
func IsDamaged(err error) bool {
	failed, ok := errors.AsType[*sqlite.Error](err)
	return ok && (failed.Code()&0xff == sqlite3.SQLITE_CORRUPT || failed.Code()&0xff == sqlite3.SQLITE_NOTADB) ||
		errors.Is(err, errDamaged)
}

// IsReadOnly reports whether SQLite could not write.
func IsReadOnly(err error) bool {
	failed, ok := errors.AsType[*sqlite.Error](err)
	return ok && failed.Code()&0xff == sqlite3.SQLITE_READONLY
}

// IsBusy reports whether another connection holds the lock that SQLite needs.
func IsBusy(err error) bool {
	failed, ok := errors.AsType[*sqlite.Error](err)
	return ok && failed.Code() == sqlite3.SQLITE_BUSY
}

// errDamaged is the error of a failed check.
var errDamaged = errors.New("database disk image is malformed")

// Check runs a PRAGMA that checks a database, and returns the first error that it finds. Errors: Unavailable.
func Check(ctx context.Context, db *gorm.DB, check string) error {
	var found string
	if err := db.WithContext(ctx).Raw(check).Scan(&found).Error; err != nil {
		return sandbox.Errorf(sandbox.Unavailable, "checking the ledger: %w", err)
	}
	if found != "ok" {
		return sandbox.Errorf(sandbox.Unavailable, "checking the ledger: %w: %s", errDamaged, found)
	}
	return nil
}
