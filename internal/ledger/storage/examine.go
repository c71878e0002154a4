package storage

import (
	"cmp"
	"context"
	"errors"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"
	"time"

	"github.com/jackc/pgx/v5"
	"gorm.io/gorm"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/ledger/location"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/ledger/migrations"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/ledger/postgres"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/ledger/sqlite"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// Examination describes what exists at a ledger's URL.
type Examination struct {
	// ID is "" if there is no ledger yet.
	ID string
	// Schema is the ledger's schema. Programs with a schema older than MinReader must not use it.
	Schema, MinReader int64
	// Known is the newest schema of this program.
	Known int64
	// Server is the version of PostgreSQL. Ahead is how far its clock is ahead of this machine's.
	Server string
	Ahead  time.Duration
	// Path is SQLite's file. Free is the free space of its file system in bytes, 0 if unknown.
	Path string
	Free uint64
}

// Examine inspects what exists at a ledger's URL, and changes nothing. Errors: as Open.
func Examine(ctx context.Context, rawURL string) (Examination, error) {
	u, err := location.Parse(rawURL)
	if err != nil {
		return Examination{}, err
	}
	if u.Scheme == "sqlite" {
		return examineSQLite(ctx, u)
	}
	return examinePostgres(ctx, u)
}

func examineSQLite(ctx context.Context, u *url.URL) (x Examination, err error) {
	x.Known = migrations.Newest
	if x.Path, err = location.SQLitePath(u); err != nil {
		return x, err
	}
	there, exists, err := nearest(x.Path)
	if err != nil {
		return x, sandbox.Errorf(sandbox.Unavailable, "looking for ledger %s: %w", x.Path, err)
	}
	if err := sqlite.RefuseNetworkFileSystem(there); err != nil {
		return x, err
	}
	if x.Free, err = sqlite.FreeBytes(there); err != nil || !exists {
		return x, err
	}
	info, err := os.Stat(x.Path)
	if err != nil {
		return x, sandbox.Errorf(sandbox.Unavailable, "opening ledger %s: %w", x.Path, err)
	}
	if err := sqlite.CheckFile(x.Path, info); err != nil {
		return x, err
	}
	db, err := sqlite.Dial(x.Path, url.Values{"_pragma": {"busy_timeout(" + sqlite.BusyTimeout + ")", "query_only(1)"}}, 1)
	if err != nil {
		return x, openingSQLite(x.Path, err)
	}
	defer func() { err = errors.Join(err, closeDB(db)) }()
	return x, x.read(ctx, db, "SELECT count(*) FROM sqlite_master WHERE name = 'ledgers'")
}

// nearest returns the path, or the nearest existing directory above it.
func nearest(path string) (there string, exists bool, err error) {
	for there = path; ; there = filepath.Dir(there) {
		_, err = os.Stat(there)
		if err == nil || !errors.Is(err, fs.ErrNotExist) {
			return there, there == path, err
		}
	}
}

func examinePostgres(ctx context.Context, u *url.URL) (x Examination, err error) {
	x.Known = migrations.Newest
	config, err := postgres.Config(u)
	if err != nil {
		return x, err
	}
	conn, err := pgx.ConnectConfig(ctx, config)
	if err != nil {
		return x, postgres.ConnectError(err)
	}
	defer func() { err = errors.Join(err, conn.Close(context.WithoutCancel(ctx))) }()
	if err := postgres.CheckServer(ctx, conn); err != nil {
		return x, err
	}
	var now time.Time
	asked := time.Now()
	if err := conn.QueryRow(ctx, "SELECT clock_timestamp(), current_setting('server_version')").Scan(&now,
		&x.Server); err != nil {
		return x, sandbox.Errorf(sandbox.Unavailable, "reading the clock of the ledger's server: %w", err)
	}
	x.Ahead = now.Sub(asked.Add(time.Since(asked) / 2))
	db, err := postgres.Dial(config, postgres.ReaderSettings, 1)
	if err != nil {
		return x, sandbox.Errorf(sandbox.Unavailable, "opening the ledger: %w", err)
	}
	defer func() { err = errors.Join(err, closeDB(db)) }()
	return x, x.read(ctx, db, "SELECT count(*) FROM pg_class WHERE oid = to_regclass('ledgers')")
}

// read reads the ledger's description of itself, if its table exists.
func (x *Examination) read(ctx context.Context, db *gorm.DB, hasLedger string) error {
	var tables int64
	db = db.WithContext(ctx)
	if err := db.Raw(hasLedger).Scan(&tables).Error; err != nil || tables == 0 {
		return Error("looking for the ledger's tables", err)
	}
	var self identity
	err := cmp.Or(
		db.Raw("SELECT id, min_reader FROM ledgers").Scan(&self).Error,
		db.Raw("SELECT max(version_id) FROM goose_db_version WHERE is_applied").Scan(&x.Schema).Error,
	)
	x.ID, x.MinReader = self.ID, self.MinReader
	return Error("reading the ledger's identity", err)
}
