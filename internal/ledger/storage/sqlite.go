package storage

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

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/ledger/location"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/ledger/sqlite"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// readers is the size of the pool that reads.
const readers = 4

// openSQLite opens an embedded ledger. The file and its directory are for the owner only,
// because deliveries and events may name people.
func openSQLite(ctx context.Context, u *url.URL, o Options) (*Store, error) {
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.Poll == 0 {
		o.Poll = 100 * time.Millisecond
	}
	path, err := location.SQLitePath(u)
	if err != nil {
		return nil, err
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return nil, sandbox.Errorf(sandbox.Unavailable, "opening ledger %s: %w", path, err)
	}
	if err := sqlite.RefuseNetworkFileSystem(filepath.Dir(path)); err != nil {
		return nil, err
	}
	kept := sqlite.NewReserve(path, o.Reserve)
	s, err := connectSQLite(ctx, path, o)
	full := sqlite.IsFull(err) || errors.Is(err, syscall.ENOSPC) // for files that SQLite does not create
	low := full && kept.Release()
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
		if err := kept.Fill(); err != nil {
			s.health.low = true
			o.Logger.Error("ledger: the disk has no space for the reserve; only writes that end leases are allowed until "+
				"there is space",
				"error", err)
		}
	}
	s.process = sandbox.RandomIDs(sandbox.LedgerIDLength)
	if s.leave, err = sqlite.ShowProcess(path, s.process); err != nil {
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
	err = sqlite.Locked(ctx, path, func() (err error) {
		if err := prepare(ctx, path, o); err != nil {
			return err
		}
		// Taking the write lock at the start avoids the deadlock of two readers that want to write: with
		// deferred transactions, two processes get SQLITE_BUSY most of the time.
		writes, err := sqlite.Dial(path, url.Values{"_txlock": {"immediate"},
			"_pragma": {"busy_timeout(" + sqlite.BusyTimeout + ")",
				"journal_mode(WAL)", "synchronous(FULL)", "foreign_keys(1)", sqlite.CheckCells}}, 1)
		if err != nil {
			return openingSQLite(path, err)
		}
		defer func() { err = errors.Join(err, closeUnless(err == nil, writes)) }()
		reads, err := sqlite.Dial(path,
			url.Values{"_pragma": {"busy_timeout(" + sqlite.BusyTimeout + ")", "query_only(1)", sqlite.CheckCells}}, readers)
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
		if err := writes.Raw("SELECT max(version_id) FROM goose_db_version").Scan(&version).Error; sqlite.IsDamaged(err) {
			return openingSQLite(path, err)
		}
		id, err := migrate(ctx, goose.DialectSQLite3, pool, writes, o)
		if err != nil {
			return openingSQLite(path, err)
		}
		files, err := sqlite.NoteFiles(path)
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
	if sqlite.IsDamaged(err) {
		return sandbox.Errorf(sandbox.Unavailable,
			"ledger %s is damaged, or is not a ledger: %w; move it away and restore a backup (sandbox restore)", path, err)
	}
	if _, coded := errors.AsType[*sandbox.Error](err); coded {
		return err
	}
	return sandbox.Errorf(sandbox.Unavailable, "opening ledger %s: %w", path, err)
}

// sqliteDatabase holds what is specific to SQLite.
type sqliteDatabase struct{ files sqlite.Files }

// ended implements database: it checks all processes that did not close the ledger.
func (d sqliteDatabase) ended(context.Context, []string) (dead []string, forget func(), err error) {
	return sqlite.EndedProcesses(d.files.Path)
}

func (d sqliteDatabase) intact() error { return d.files.Intact() }

func (sqliteDatabase) fault(err error) Fault {
	switch {
	case sqlite.IsFull(err):
		return FaultFull
	case sqlite.IsDamaged(err):
		return FaultDamaged
	case sqlite.IsReadOnly(err):
		return FaultReadOnly
	}
	return FaultNone
}

// bounded adds no limit. BusyTimeout limits the wait for other processes, and nothing can limit the disk.
func (sqliteDatabase) bounded(ctx context.Context) (context.Context, context.CancelFunc) {
	return ctx, func() {}
}

// begin announces nothing, because other processes see data_version change.
func (sqliteDatabase) begin(db *gorm.DB) (b begun, err error) {
	return b, db.Raw("SELECT min_reader FROM ledgers").Scan(&b.OldestProgram).Error
}

func (sqliteDatabase) committing(err error) (unknown bool, _ error) {
	return false, Error("committing to the ledger", err)
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
