package ledger

import (
	"context"
	"database/sql"
	"errors"
	"net/url"
	"os"
	"path/filepath"
	"time"

	"github.com/glebarez/sqlite"
	"github.com/gofrs/flock"
	"gorm.io/gorm"
	"gorm.io/gorm/logger"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/sandbox"
)

const (
	// busyTimeout is how long a writer waits for another process's transaction.
	busyTimeout = "15000" // ms
	// readers is the size of the pool that reads.
	readers = 4
	// neverEvict is the one value with which GORM's statement cache starts no goroutine; any
	// other starts one that never ends. Our statements are few and fixed.
	neverEvict = 10 * 365 * 24 * time.Hour
)

// openSQLite opens an embedded ledger. The file and its directory are for the owner only,
// because deliveries and events may name people.
func openSQLite(ctx context.Context, u *url.URL, o Options) (*Store, error) {
	path := u.Path
	if u.Host != "" || !filepath.IsAbs(path) || u.RawQuery != "" {
		return nil, sandbox.Errorf(sandbox.Invalid, "ledger URL %q: write it as sqlite:///absolute/path/ledger.db, without host and query", u)
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
	s := &Store{
		now: o.Now, poll: o.Poll, log: o.Logger, writes: writes, reads: reads,
		jobs: make(chan *job, maxBatch), stop: make(chan struct{}), changed: make(chan struct{}),
	}
	if s.id, err = migrateSQLite(ctx, path, writes, o); err != nil {
		return nil, errors.Join(err, closeDB(reads), closeDB(writes))
	}
	s.wg.Add(2)
	go s.writer()
	go s.watchOtherProcesses()
	return s, nil
}

func dial(path string, q url.Values, connections int) (*gorm.DB, error) {
	dsn := url.URL{Scheme: "file", Opaque: (&url.URL{Path: path}).EscapedPath(), RawQuery: q.Encode()}
	db, err := gorm.Open(sqlite.Open(dsn.String()), &gorm.Config{
		SkipDefaultTransaction: true,
		PrepareStmt:            true,
		PrepareStmtTTL:         neverEvict,
		TranslateError:         true,
		Logger:                 logger.Discard,
	})
	if err != nil {
		return nil, err
	}
	pool, err := db.DB()
	if err != nil {
		return nil, err
	}
	pool.SetMaxOpenConns(connections)
	pool.SetMaxIdleConns(connections)
	return db, pool.Ping()
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
	return migrate(ctx, pool, db, o)
}

// watchOtherProcesses passes on the commits of other processes to Changed.
func (s *Store) watchOtherProcesses() {
	defer s.wg.Done()
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	pool, err := s.reads.DB()
	if err != nil {
		s.log.Error("ledger: watching for other processes", "error", err)
		return
	}
	// data_version tells of others only relative to one connection.
	conn, err := pool.Conn(ctx)
	if err != nil {
		s.log.Error("ledger: watching for other processes", "error", err)
		return
	}
	defer func() { _ = conn.Close() }()
	tick := time.NewTicker(s.poll)
	defer tick.Stop()
	var last int64
	for {
		select {
		case <-s.stop:
			return
		case <-tick.C:
		}
		var version int64
		if err := conn.QueryRowContext(ctx, "PRAGMA data_version").Scan(&version); err != nil && !errors.Is(err, sql.ErrConnDone) {
			s.log.Warn("ledger: watching for other processes", "error", err)
			continue
		}
		if last != 0 && version != last {
			s.notify()
		}
		last = version
	}
}
