package ledger

import (
	"context"
	"database/sql"
	"errors"
	"net/url"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"github.com/pressly/goose/v3"
	"gorm.io/gorm"
	"gorm.io/gorm/logger"
	"modernc.org/sqlite"
	sqlite3 "modernc.org/sqlite/lib"

	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

const (
	// busyTimeout is how long a writer waits for another process's transaction.
	busyTimeout = "15000" // ms
	// readers is the size of the pool that reads.
	readers = 4
	// lockRetry is how often the file lock is tried.
	lockRetry = 20 * time.Millisecond
	// checkCells makes SQLite check each page when it reads it, so that it finds damage sooner.
	checkCells = "cell_size_check(1)"
)

// openSQLite opens an embedded ledger. The file and its directory are for the owner only,
// because deliveries and events may name people.
func openSQLite(ctx context.Context, u *url.URL, o Options) (*Store, error) {
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.Poll == 0 {
		o.Poll = 100 * time.Millisecond
	}
	path, err := sqlitePath(u)
	if err != nil {
		return nil, err
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return nil, sandbox.Errorf(sandbox.Unavailable, "opening ledger %s: %w", path, err)
	}
	if err := refuseNetworkFileSystem(filepath.Dir(path)); err != nil {
		return nil, err
	}
	kept := newReserve(path, o.Reserve)
	s, err := connectSQLite(ctx, path, o)
	full := isFull(err) || errors.Is(err, syscall.ENOSPC) // for files that SQLite does not create
	low := full && kept.release()
	if low {
		o.Logger.Error("ledger: the disk is full; only writes that end leases are allowed until there is space", "error", err)
		s, err = connectSQLite(ctx, path, o)
	}
	if err != nil {
		if full {
			return nil, sandbox.Errorf(sandbox.Unavailable, "opening ledger %s: its disk is full: free disk space and start "+
				"again: %w",
				path, err)
		}
		return nil, err
	}
	s.reserve, s.health.low = kept, low
	if !low && o.Reserve > 0 {
		if err := kept.fill(); err != nil {
			s.health.low = true
			o.Logger.Error("ledger: the disk has no space for the reserve; only writes that end leases are allowed until "+
				"there is space",
				"error", err)
		}
	}
	s.process = sandbox.RandomIDs(sandbox.LedgerIDLength)
	if s.leave, err = showOn(path, s.process); err != nil {
		return nil, errors.Join(err, closeDB(s.reads), closeDB(s.writes))
	}
	if err := s.startWatching(ctx, path, o.Poll); err != nil {
		return nil, errors.Join(openingSQLite(path, err), closeDB(s.reads), closeDB(s.writes), s.leave())
	}
	if s, err = s.startWriting(Essential(ctx)); err != nil {
		return nil, openingSQLite(path, err)
	}
	return s, nil
}

// connectSQLite returns a store that is not running yet, on a ledger of this program's schema.
func connectSQLite(ctx context.Context, path string, o Options) (s *Store, err error) {
	err = locked(ctx, path, func() (err error) {
		if err := prepare(ctx, path, o); err != nil {
			return err
		}
		// Taking the write lock at the start avoids the deadlock of two readers that want to write: with
		// deferred transactions, two processes get SQLITE_BUSY most of the time.
		writes, err := dial(path, url.Values{"_txlock": {"immediate"}, "_pragma": {"busy_timeout(" + busyTimeout + ")",
			"journal_mode(WAL)", "synchronous(FULL)", "foreign_keys(1)", checkCells}}, 1)
		if err != nil {
			return openingSQLite(path, err)
		}
		defer func() { err = errors.Join(err, closeUnless(err == nil, writes)) }()
		reads, err := dial(path,
			url.Values{"_pragma": {"busy_timeout(" + busyTimeout + ")", "query_only(1)", checkCells}}, readers)
		if err != nil {
			return openingSQLite(path, err)
		}
		defer func() { err = errors.Join(err, closeUnless(err == nil, reads)) }()
		pool, err := writes.DB()
		if err != nil {
			return err
		}
		var version int64
		// goose does not say that the file is damaged.
		if err := writes.Raw("SELECT max(version_id) FROM goose_db_version").Scan(&version).Error; isDamaged(err) {
			return openingSQLite(path, err)
		}
		id, err := migrate(ctx, goose.DialectSQLite3, pool, writes, o)
		if err != nil {
			return openingSQLite(path, err)
		}
		files, err := noteFiles(path)
		if err != nil {
			return err
		}
		s = newStore(sqliteDatabase{files}, writes, reads, o)
		s.id = id
		return nil
	})
	return s, err
}

func closeUnless(keep bool, db *gorm.DB) error {
	if keep {
		return nil
	}
	return closeDB(db)
}

// openingSQLite converts an error of opening a ledger.
func openingSQLite(path string, err error) error {
	if isDamaged(err) {
		return sandbox.Errorf(sandbox.Unavailable,
			"ledger %s is damaged, or is not a ledger: %w; move it away and restore a backup (reconciler restore)", path, err)
	}
	if _, coded := errors.AsType[*sandbox.Error](err); coded {
		return err
	}
	return sandbox.Errorf(sandbox.Unavailable, "opening ledger %s: %w", path, err)
}

func sqlitePath(u *url.URL) (string, error) {
	if u.Host != "" || !filepath.IsAbs(u.Path) || u.RawQuery != "" {
		return "", sandbox.Errorf(sandbox.Invalid,
			"ledger URL %q: write it as sqlite:///absolute/path/ledger.db, without host and query", RedactURL(u.String()))
	}
	return u.Path, nil
}

func dial(path string, q url.Values, connections int) (*gorm.DB, error) {
	dsn := url.URL{Scheme: "file", Opaque: (&url.URL{Path: path}).EscapedPath(), RawQuery: q.Encode()}
	open, err := sqlite.NewConnector(dsn.String())
	if err != nil {
		return nil, err
	}
	pool := sql.OpenDB(keepingConnector{open})
	pool.SetMaxOpenConns(connections)
	pool.SetMaxIdleConns(connections)
	// GORM's prepared statements end with their transaction, and all of ours are in one.
	db, err := gorm.Open(sqliteDialect{pool}, &gorm.Config{
		SkipDefaultTransaction: true,
		TranslateError:         true,
		NamingStrategy:         naming{},
		Logger:                 logger.Discard,
	})
	if err == nil {
		err = pool.Ping()
	}
	if err != nil {
		return nil, errors.Join(err, pool.Close())
	}
	return db, nil
}

// isOpenSQLite reports whether any program has the file open: with the write-ahead log, each holds a lock on
// it, and a reader in exclusive mode must be alone.
func isOpenSQLite(ctx context.Context, rawURL string) (bool, error) {
	u, err := parseURL(rawURL)
	if err != nil {
		return false, err
	}
	db, err := openFile(u.Path, url.Values{"_pragma": {"locking_mode(EXCLUSIVE)"}})
	if err == nil {
		_, err = db.ExecContext(ctx, "SELECT count(*) FROM ledgers")
		err = errors.Join(err, db.Close())
	}
	if busy, ok := errors.AsType[*sqlite.Error](err); ok && busy.Code() == sqlite3.SQLITE_BUSY {
		return true, nil
	}
	return false, unavailable("checking whether the ledger is in use", err)
}

// sqliteDatabase holds what is specific to SQLite.
type sqliteDatabase struct{ files openFiles }

func (d sqliteDatabase) intact() error { return d.files.intact() }

func (sqliteDatabase) fault(err error) Fault {
	switch {
	case isFull(err):
		return FaultFull
	case isDamaged(err):
		return FaultDamaged
	}
	if failed, ok := errors.AsType[*sqlite.Error](err); ok && failed.Code()&0xff == sqlite3.SQLITE_READONLY {
		return FaultReadOnly
	}
	return FaultNone
}

// isDamaged reports whether SQLite found an invalid page.
func isDamaged(err error) bool {
	failed, ok := errors.AsType[*sqlite.Error](err)
	return ok && (failed.Code()&0xff == sqlite3.SQLITE_CORRUPT || failed.Code()&0xff == sqlite3.SQLITE_NOTADB) ||
		errors.Is(err, errDamaged)
}

// bounded adds no limit: busyTimeout limits the wait for other processes, and nothing can limit the disk.
func (sqliteDatabase) bounded(ctx context.Context) (context.Context, context.CancelFunc) {
	return ctx, func() {}
}

// begin announces nothing: other processes see data_version change.
func (sqliteDatabase) begin(db *gorm.DB) (b begun, err error) {
	return b, db.Raw("SELECT min_reader FROM ledgers").Scan(&b.OldestProgram).Error
}

func (sqliteDatabase) committing(err error) error {
	return unavailable("committing to the ledger", err)
}

func (sqliteDatabase) snapshot() *sql.TxOptions { return nil }

// versionQuery tells, on one connection, whether another connection has committed.
const versionQuery = "PRAGMA data_version"

// startWatching opens a separate connection and records the current version.
func (s *Store) startWatching(ctx context.Context, path string, poll time.Duration) error {
	pool, err := s.reads.DB()
	if err != nil {
		return err
	}
	conn, err := pool.Conn(ctx)
	if err != nil {
		return err
	}
	var version int64
	if err := conn.QueryRowContext(ctx, versionQuery).Scan(&version); err != nil {
		return errors.Join(err, conn.Close())
	}
	s.wg.Add(1)
	go s.watchOtherProcesses(conn, version, path, poll)
	return nil
}

// watchOtherProcesses forwards the commits of other processes to Changed. It also sees this process's own
// commits again, which is harmless. It also watches the ledger's files.
func (s *Store) watchOtherProcesses(conn *sql.Conn, last int64, path string, poll time.Duration) {
	defer s.wg.Done()
	defer func() { _ = conn.Close() }()
	tick := time.NewTicker(poll)
	defer tick.Stop()
	rescued := false
	for {
		select {
		case <-s.stop:
			return
		case <-tick.C:
		}
		lost := s.checkFiles() != nil
		if lost && !rescued {
			s.logRescue(path)
		}
		rescued = lost
		var version int64
		if err := conn.QueryRowContext(context.Background(), versionQuery).Scan(&version); err != nil {
			s.log.Warn("ledger: watching for other processes' commits failed", "error", err)
			continue
		}
		if version != last {
			s.notify(false)
		}
		last = version
	}
}
