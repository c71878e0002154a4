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

	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// Options are what a store is given from outside.
type Options struct {
	// Now is the clock; nil means time.Now on SQLite, and on PostgreSQL the database's clock, which
	// is one for all replicas.
	Now func() time.Time
	// Boot is the time since boot, which tells a step of the clock from time that passed; nil means
	// the host's where Now is nil, and otherwise that Now is never stepped. BootID names the boot.
	Boot   func() time.Duration
	BootID string
	// IDs issues the ledger's id; nil means sandbox.RandomIDs.
	IDs sandbox.IDs
	// Poll is how often other processes' commits are looked for. Default 100ms on SQLite; on
	// PostgreSQL, which tells of them, 5s.
	Poll time.Duration
	// NoListen has PostgreSQL not tell of other processes' commits, so that they are found by Poll
	// alone. For testing/synctest, whose time stands still while a goroutine waits for a socket; and
	// for poolers that do not pass notifications on.
	NoListen bool
	// Reserve is how many bytes of the disk an embedded ledger keeps back for what must go on when the disk is full; see
	// Essential. 0 keeps none.
	Reserve int64
	// Logger receives what has no caller to go to; nil discards.
	Logger *slog.Logger
}

// Store is an open ledger. It is safe for concurrent use.
type Store struct {
	id string
	// process shows that this process lives, until leave; "" where nothing does.
	process string
	leave   func() error
	now     func() time.Time
	log     *slog.Logger
	db      database
	writes  *gorm.DB // one connection
	reads   *gorm.DB
	jobs    chan *job // unbuffered: what the writer takes from it is answered
	stop    chan struct{}
	wg      sync.WaitGroup

	health  health
	reserve reserve // set before the store is at work

	mu      sync.Mutex // guards what follows
	clock   *clock     // nil: never stepped. Only the writer changes it
	closed  bool
	changed chan struct{}
}

// database is what SQLite and PostgreSQL do differently beneath an open store.
type database interface {
	// bounded bounds one transaction, so that a server that does not answer is not waited for.
	bounded(ctx context.Context) (context.Context, context.CancelFunc)
	// begin is the first read of every commit. After it there is no other writer until the commit ends, which
	// other processes are told of.
	begin(db *gorm.DB) (begun, error)
	// committing gives the error of a commit its text: nothing is known to have changed.
	committing(err error) error
	// ended returns those of some processes that have died, and perhaps others. forget is called once nothing of
	// theirs is left.
	ended(ctx context.Context, processes []string) (dead []string, forget func(), err error)
	// snapshot is how a transaction that reads begins.
	snapshot() *sql.TxOptions
	// intact returns an error if what was committed is not where the next start looks for it.
	intact() error
	// verify reads all of the database, and returns an error if it is damaged.
	verify(ctx context.Context, db *gorm.DB) error
	// fault is what a failure says of the database.
	fault(err error) Fault
}

// Open opens the ledger at a URL, making it and bringing its schema up to date as needed.
// "sqlite:///var/lib/sandbox/ledger.db" is a file, "postgres://user@host/database" a PostgreSQL
// database, where "?search_path=schema" keeps several ledgers apart. Errors: Invalid for a URL that
// cannot be used, Conflict for a ledger of a newer program, Unavailable. None holds the password.
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
	u, err := parseURL(rawURL)
	if err != nil {
		return nil, err
	}
	if u.Scheme == "sqlite" {
		return openSQLite(ctx, u, o)
	}
	return openPostgres(ctx, u, o)
}

// newStore returns a store that is not at work yet.
func newStore(db database, writes, reads *gorm.DB, o Options) *Store {
	return &Store{
		now: o.Now, clock: newClock(o), log: o.Logger, db: db, writes: writes, reads: reads,
		leave: func() error { return nil }, jobs: make(chan *job), stop: make(chan struct{}), changed: make(chan struct{}),
	}
}

// ID identifies the ledger. It is made with it and never changes.
func (s *Store) ID() string { return s.id }

// Now is the ledger's clock, which everything on it is timed by.
func (s *Store) Now() time.Time { return s.now() }

// stepped reports whether the clock was stepped and no write has seen it yet.
func (s *Store) stepped() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.clock.stepped(At(s.now()))
}

// Changed returns a channel that is closed at the next commit, by this process or another one:
// on SQLite within Options.Poll, on PostgreSQL at once. Take it before reading what is waited for.
func (s *Store) Changed() <-chan struct{} {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.changed
}

func (s *Store) notify() {
	s.mu.Lock()
	defer s.mu.Unlock()
	close(s.changed)
	s.changed = make(chan struct{})
}

// Close ends the store once the writes under way are done.
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
	if s.stepped() { // by the old clock's times, leases would seem to have ended
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
	err := fn(&Tx{db: db, Now: At(s.now())})
	s.note(err)
	return err
}

// newClock returns the guard of a store's clock, nil where the clock is never stepped.
func newClock(o Options) *clock {
	if o.Boot == nil {
		return nil
	}
	return &clock{boot: o.Boot, bootID: o.BootID}
}

// Tx is one transaction.
type Tx struct {
	db *gorm.DB
	// Now is the transaction's moment: everything in it happens at once.
	Now Time
	// actor is on whose behalf everything in it is done.
	actor sandbox.Actor
	// events are appended together when the transaction is committed.
	events []Event
	// grown are sums of output that have grown.
	grown []KeptSum
	// changes are nil in a transaction that only reads.
	changes changes
	// updating are the sandboxes that Update is changing.
	updating []string
}

// ActFor says on whose behalf what follows in the transaction is done: it begins with who asked for the
// transaction, and a transaction may be made for several.
func (tx *Tx) ActFor(a sandbox.Actor) { tx.actor = a }

// first loads one row by a condition, or returns nil when there is none.
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

// unavailable gives a database error its code. The cause stays visible to errors.Is.
func unavailable(what string, err error) error {
	if err == nil {
		return nil
	}
	if errors.Is(err, gorm.ErrDuplicatedKey) {
		return sandbox.Errorf(sandbox.Conflict, "%s: the row exists already: %w", what, err)
	}
	if isUnstorableText(err) {
		return sandbox.Errorf(sandbox.Invalid, "%s: a text holds a NUL character or is not UTF-8, which PostgreSQL does not store: %w", what, err)
	}
	return sandbox.Errorf(sandbox.Unavailable, "%s: %w (retry; if it persists look at the database, its disk and its permissions)", what, err)
}

// rowCount returns how many rows a change touched.
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
