package storage

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

	// begin begins a transaction of the package above.
	begin func(tx Tx) Session
}

// Store is an open ledger. It is safe for concurrent use.
type Store struct {
	id string
	// process proves that this process lives, until leave; "" if there is no such proof.
	process string
	leave   func() error
	now     func() time.Time
	log     *slog.Logger
	begin   func(tx Tx) Session
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
	// committing converts the error of a commit. unknown means that the commit may have succeeded.
	committing(err error) (unknown bool, _ error)
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

// Open opens the ledger at a URL. It creates the ledger, or upgrades its schema, if needed. begin makes a transaction
// of the package above, a type that embeds Tx. "sqlite:///var/lib/sandbox/ledger.db" is a file,
// "postgres://user@host/database" a PostgreSQL database; "?search_path=schema" separates several ledgers in one.
// Errors: Invalid for an unusable URL, Conflict for a ledger of a newer program, Unavailable. No error contains the
// password.
func Open(ctx context.Context, rawURL string, o Options, begin func(tx Tx) Session) (*Store, error) {
	o.begin = begin
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
		now: o.Now, clock: newClock(o), log: o.Logger, begin: o.begin, db: db, writes: writes, reads: reads,
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

// Changed returns a channel that is closed at the next commit of this or another process: within Options.Poll on
// SQLite, immediately on PostgreSQL. Call it before you read what you wait for.
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

// notify announces a commit. keptSchedule is false for commits of other processes, about which nothing more is known.
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

// Read runs work in one snapshot of the ledger. A panic becomes its error, so that one row cannot stop the service.
func (s *Store) Read(ctx context.Context, w Work) error {
	if s.stepped() { // with times of the old clock, leases would seem to have ended
		if err := s.Write(ctx, idle); err != nil {
			return err
		}
	}
	ctx, cancel := s.db.bounded(ctx)
	defer cancel()
	db := s.reads.WithContext(ctx).Begin(s.db.snapshot())
	if db.Error != nil {
		return Error("reading the ledger", db.Error)
	}
	defer db.Rollback()
	err := recovered(newSession(s.begin, Tx{db: db, Now: micro.At(s.now())}), w)
	s.note(err)
	return err
}

// idle is work that changes nothing. Its write handles a step of the clock.
var idle = workFunc(func(Session) error { return nil })

// newClock returns the guard of a store's clock, nil if the clock never steps.
func newClock(o Options) *clock {
	if o.Boot == nil {
		return nil
	}
	return &clock{boot: o.Boot, bootID: o.BootID}
}

var errClosed = &sandbox.Error{Code: sandbox.Unavailable, Message: "the ledger is closed"}
