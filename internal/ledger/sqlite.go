package ledger

import (
	"context"
	"database/sql"
	"errors"
	"net/url"
	"os"
	"path/filepath"
	"time"

	"github.com/gofrs/flock"
	"github.com/pressly/goose/v3"
	"gorm.io/gorm"
	"gorm.io/gorm/logger"
	"modernc.org/sqlite"
	sqlite3 "modernc.org/sqlite/lib"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/sandbox"
)

const (
	// busyTimeout is how long a writer waits for another process's transaction.
	busyTimeout = "15000" // ms
	// readers is the size of the pool that reads.
	readers = 4
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
	if err := createPrivate(path); err != nil {
		return nil, sandbox.Errorf(sandbox.Unavailable, "opening ledger %s: %w", path, err)
	}
	if err := refuseNetworkFileSystem(path); err != nil {
		return nil, err
	}
	// Beginning with the write lock avoids the deadlock of two readers that want to write:
	// with deferred transactions two processes see SQLITE_BUSY in most of them.
	writes, err := dial(path, url.Values{"_txlock": {"immediate"}, "_pragma": {"busy_timeout(" + busyTimeout + ")",
		"journal_mode(WAL)", "synchronous(FULL)", "foreign_keys(1)"}}, 1)
	if err != nil {
		return nil, sandbox.Errorf(sandbox.Unavailable, "opening ledger %s: %w", path, err)
	}
	reads, err := dial(path, url.Values{"_pragma": {"busy_timeout(" + busyTimeout + ")", "query_only(1)"}}, readers)
	if err != nil {
		return nil, errors.Join(sandbox.Errorf(sandbox.Unavailable, "opening ledger %s: %w", path, err), closeDB(writes))
	}
	files := sqliteDatabase{path}
	s := newStore(files, writes, reads, o)
	if s.id, err = migrateSQLite(ctx, path, writes, o); err != nil {
		return nil, errors.Join(err, closeDB(reads), closeDB(writes))
	}
	s.process = sandbox.RandomIDs(sandbox.LedgerIDLength)
	if s.leave, err = files.show(s.process); err != nil {
		return nil, errors.Join(err, closeDB(reads), closeDB(writes))
	}
	if err := s.startWatching(ctx, o.Poll); err != nil {
		return nil, errors.Join(unavailable("opening the ledger", err), closeDB(reads), closeDB(writes), s.leave())
	}
	return s.startWriting(ctx)
}

func sqlitePath(u *url.URL) (string, error) {
	if u.Host != "" || !filepath.IsAbs(u.Path) || u.RawQuery != "" {
		return "", sandbox.Errorf(sandbox.Invalid, "ledger URL %q: write it as sqlite:///absolute/path/ledger.db, without host and query", RedactURL(u.String()))
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
	// GORM's own prepared statements end with their transaction, and all of ours are in one.
	db, err := gorm.Open(sqliteDialect{pool}, &gorm.Config{
		SkipDefaultTransaction: true,
		TranslateError:         true,
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

// createPrivate makes the database file before SQLite does, so that its mode, and that of
// the files SQLite puts beside it, is 0600.
func createPrivate(path string) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return err
	}
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return err
	}
	return f.Close()
}

// migrateSQLite brings the schema up to date under a file lock: without one, processes that
// make the same ledger at the same time fail each other.
func migrateSQLite(ctx context.Context, path string, db *gorm.DB, o Options) (string, error) {
	lock := flock.New(path+".lock", flock.SetPermissions(0o600))
	if _, err := lock.TryLockContext(ctx, 20*time.Millisecond); err != nil {
		return "", sandbox.Errorf(sandbox.Unavailable, "locking ledger %s for its migration: %w", path, err)
	}
	defer func() { _ = lock.Close() }()
	pool, err := db.DB()
	if err != nil {
		return "", err
	}
	return migrate(ctx, goose.DialectSQLite3, pool, db, o)
}

// isOpenSQLite reports whether any program has the file open: with the write-ahead log, each holds a lock on it
// for as long, and who reads it in exclusive mode must be alone.
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
	return false, unavailable("looking who uses the ledger", err)
}

// sqliteDatabase is what is particular to SQLite.
type sqliteDatabase struct{ path string }

// bounded adds no bound: waiting for other processes is bounded by busyTimeout, and the disk cannot be
// hurried.
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

// startWatching takes a connection of its own and notes what was committed until now.
func (s *Store) startWatching(ctx context.Context, poll time.Duration) error {
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
	go s.watchOtherProcesses(conn, version, poll)
	return nil
}

// watchOtherProcesses passes on the commits of other processes to Changed. Those of this one
// are seen as well, once more, which does no harm.
func (s *Store) watchOtherProcesses(conn *sql.Conn, last int64, poll time.Duration) {
	defer s.wg.Done()
	defer func() { _ = conn.Close() }()
	tick := time.NewTicker(poll)
	defer tick.Stop()
	for {
		select {
		case <-s.stop:
			return
		case <-tick.C:
		}
		var version int64
		if err := conn.QueryRowContext(context.Background(), versionQuery).Scan(&version); err != nil {
			s.log.Warn("ledger: watching for other processes", "error", err)
			continue
		}
		if version != last {
			s.notify()
		}
		last = version
	}
}
