package ledger

import (
	"context"
	"database/sql"
	"errors"
	"io"
	"log/slog"
	"sync"
	"time"

	"gorm.io/gorm"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/ledger/location"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/ledger/micro"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/ledger/postgres"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/ledger/sqlite"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// Options configure a store.
type Options struct {
	// Now is the clock. Nil means time.Now on SQLite, and on PostgreSQL the database's clock, which all
	// replicas share.
	Now func() time.Time
	// Boot is the time since boot, which distinguishes a step of the clock from passed time. Nil means the
	// host's if Now is nil, and otherwise that Now never steps. BootID identifies the boot.
	Boot   func() time.Duration
	BootID string
	// IDs issues the ledger's id; nil means sandbox.RandomIDs.
	IDs sandbox.IDs
	// Poll is the interval for finding other processes' commits. Default 100ms on SQLite; 5s on PostgreSQL,
	// which also sends notifications.
	Poll time.Duration
	// NoListen disables PostgreSQL's notifications, so that only Poll finds other processes' commits. It is
	// for testing/synctest, whose time stands still while a goroutine waits for a socket, and for poolers
	// that do not forward notifications.
	NoListen bool
	// Reserve is the disk space, in bytes, that an embedded ledger reserves for essential writes on a full
	// disk; see Essential. 0 reserves none.
	Reserve int64
	// Logger receives messages without a caller; nil discards them.
	Logger *slog.Logger
}

// Store is an open ledger. It is safe for concurrent use.
type Store struct {
	id string
	// process proves that this process lives, until leave; "" if there is no such proof.
	process string
	leave   func() error
	now     func() time.Time
	log     *slog.Logger
	db      database
	writes  *gorm.DB // one connection
	reads   *gorm.DB
	jobs    chan *job // unbuffered: the writer answers every job that it takes
	stop    chan struct{}
	wg      sync.WaitGroup

	health  health
	reserve sqlite.Reserve // set before the store starts

	mu        sync.Mutex // guards what follows
	clock     *clock     // nil: never steps. Only the writer changes it
	closed    bool
	changed   chan struct{}
	scheduled chan struct{}
}

// database holds the differences between SQLite and PostgreSQL in an open store.
type database interface {
	// bounded limits one transaction, in case a server does not answer.
	bounded(ctx context.Context) (context.Context, context.CancelFunc)
	// begin is the first read of every commit. After it there is no other writer until the commit ends. Other
	// processes are notified of the commit.
	begin(db *gorm.DB) (begun, error)
	// committing converts the error of a commit: nothing is known to have changed.
	committing(err error) error
	// ended returns which of the given processes have died, and possibly others. Call forget once nothing of
	// theirs is left.
	ended(ctx context.Context, processes []string) (dead []string, forget func(), err error)
	// snapshot returns the options of a reading transaction.
	snapshot() *sql.TxOptions
	// intact returns an error if the next start would not find committed data.
	intact() error
	// verify reads the whole database, and returns an error if it is damaged.
	verify(ctx context.Context, db *gorm.DB) error
	// fault returns what a failure says about the database.
	fault(err error) Fault
}

// Open opens the ledger at a URL. It creates it or upgrades its schema if needed.
// "sqlite:///var/lib/sandbox/ledger.db" is a file, "postgres://user@host/database" a PostgreSQL database;
// "?search_path=schema" separates several ledgers in one. Errors: Invalid for an unusable URL, Conflict for a
// ledger of a newer program, Unavailable. No error contains the password.
func Open(ctx context.Context, rawURL string, o Options) (*Store, error) {
	if o.Now == nil {
		o.Boot, o.BootID = sinceBoot, thisBoot()
	}
	if o.IDs == nil {
		o.IDs = sandbox.RandomIDs
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.NewTextHandler(io.Discard, nil))
	}
	u, err := location.Parse(rawURL)
	if err != nil {
		return nil, err
	}
	if u.Scheme == "sqlite" {
		return openSQLite(ctx, u, o)
	}
	return openPostgres(ctx, u, o)
}

// newStore returns a store that is not running yet.
func newStore(db database, writes, reads *gorm.DB, o Options) *Store {
	return &Store{
		now: o.Now, clock: newClock(o), log: o.Logger, db: db, writes: writes, reads: reads,
		leave: func() error { return nil }, jobs: make(chan *job), stop: make(chan struct{}),
		changed: make(chan struct{}), scheduled: make(chan struct{}),
	}
}

// ID identifies the ledger. It never changes.
func (s *Store) ID() string { return s.id }

// Now is the ledger's clock. It times everything in the ledger.
func (s *Store) Now() time.Time { return s.now() }

// stepped reports whether the clock was stepped since the last write.
func (s *Store) stepped() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.clock.stepped(micro.At(s.now()))
}

// Changed returns a channel that is closed at the next commit of this or another process: within Options.Poll
// on SQLite, at once on PostgreSQL. Call it before you read what you wait for.
func (s *Store) Changed() <-chan struct{} {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.changed
}

// Scheduled is Changed without this process's commits whose transactions all kept the schedule, see
// Tx.KeepSchedule.
func (s *Store) Scheduled() <-chan struct{} {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.scheduled
}

// notify announces a commit. Of another process's commit nothing more is known.
func (s *Store) notify(keptSchedule bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	close(s.changed)
	s.changed = make(chan struct{})
	if !keptSchedule {
		close(s.scheduled)
		s.scheduled = make(chan struct{})
	}
}

// Close closes the store after the current writes.
func (s *Store) Close() error {
	s.mu.Lock()
	if s.closed {
		s.mu.Unlock()
		return nil
	}
	s.closed = true
	close(s.stop)
	s.mu.Unlock()
	s.wg.Wait()
	return errors.Join(closeDB(s.reads), closeDB(s.writes), s.leave())
}

func closeDB(db *gorm.DB) error {
	pool, err := db.DB()
	if err != nil {
		return err
	}
	return pool.Close()
}

// Read runs fn in one snapshot of the ledger.
func (s *Store) Read(ctx context.Context, fn func(tx *Tx) error) error {
	if s.stepped() { // with the old clock's times, leases would seem to have ended
		if err := s.Write(ctx, func(*Tx) error { return nil }); err != nil {
			return err
		}
	}
	ctx, cancel := s.db.bounded(ctx)
	defer cancel()
	db := s.reads.WithContext(ctx).Begin(s.db.snapshot())
	if db.Error != nil {
		return unavailable("reading the ledger", db.Error)
	}
	defer db.Rollback()
	err := fn(&Tx{db: db, Now: micro.At(s.now())})
	s.note(err)
	return err
}

// newClock returns the guard of a store's clock, nil if the clock never steps.
func newClock(o Options) *clock {
	if o.Boot == nil {
		return nil
	}
	return &clock{boot: o.Boot, bootID: o.BootID}
}

// Tx is one transaction.
type Tx struct {
	db *gorm.DB
	// Now is the transaction's time: everything in it happens at once.
	Now micro.Time
	// actor is the caller on whose behalf the transaction works.
	actor sandbox.Actor
	// events are appended together at the commit.
	events []Event
	// grown are sums of output that have grown.
	grown []KeptSum
	// changes are nil in a reading transaction.
	changes changes
	// updating are the sandboxes that Update is changing.
	updating []string
	// keepsSchedule is set by KeepSchedule.
	keepsSchedule bool
}

// KeepSchedule declares that a Write makes no sandbox due earlier, so that the commit need not wake the
// workers on due sandboxes. Commits of commands are by far the most frequent, and keep the schedule.
func (tx *Tx) KeepSchedule() { tx.keepsSchedule = true }

// ActFor sets the actor for the rest of the transaction. Initially it is the caller; a transaction may serve
// several.
func (tx *Tx) ActFor(a sandbox.Actor) { tx.actor = a }

// first loads one row by a condition, nil if there is none.
func first[T any](tx *Tx, query string, args ...any) (*T, error) {
	row := new(T)
	found := tx.db.Where(query, args...).Limit(1).Find(row)
	if found.Error != nil {
		return nil, unavailable("reading the ledger", found.Error)
	}
	if found.RowsAffected == 0 {
		return nil, nil
	}
	return row, tx.know(row)
}

// find loads rows by a prepared query.
func find[T any](q *gorm.DB) ([]T, error) {
	var rows []T
	if err := q.Find(&rows).Error; err != nil {
		return nil, unavailable("reading the ledger", err)
	}
	return rows, nil
}

func (tx *Tx) create(row any) error {
	return unavailable("writing to the ledger", tx.db.Create(row).Error)
}

// unavailable gives a database error a code. errors.Is still finds the cause.
func unavailable(what string, err error) error {
	if err == nil {
		return nil
	}
	if errors.Is(err, gorm.ErrDuplicatedKey) {
		return sandbox.Errorf(sandbox.Conflict, "%s: the row exists already: %w", what, err)
	}
	if postgres.IsUnstorableText(err) {
		return sandbox.Errorf(sandbox.Invalid,
			"%s: a text contains a NUL character or is not UTF-8, which PostgreSQL cannot store: %w", what, err)
	}
	return sandbox.Errorf(sandbox.Unavailable,
		"%s: %w (retry; if it persists, check the database, its disk and its permissions)", what, err)
}

// rowCount returns the number of changed rows.
func rowCount(what string, res *gorm.DB) (int64, error) {
	return res.RowsAffected, unavailable(what, res.Error)
}

func pageSize(limit int) int {
	if limit <= 0 || limit > sandbox.MaxPage {
		return sandbox.MaxPage
	}
	return limit
}

var errClosed = &sandbox.Error{Code: sandbox.Unavailable, Message: "the ledger is closed"}
