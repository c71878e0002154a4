package ledger

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net/url"
	"sync"
	"time"

	"gorm.io/gorm"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/sandbox"
)

// Options are what a store is given from outside.
type Options struct {
	// Now is the clock; nil means time.Now.
	Now func() time.Time
	// Boot is the time since boot, which tells a step of the clock from time that passed; nil means
	// the host's where Now is nil, and otherwise that Now is never stepped. BootID names the boot.
	Boot   func() time.Duration
	BootID string
	// IDs issues the ledger's id; nil means sandbox.RandomIDs.
	IDs sandbox.IDs
	// Poll is how often other processes' commits are looked for. Default 100ms.
	Poll time.Duration
	// Logger receives what has no caller to go to; nil discards.
	Logger *slog.Logger
}

// Store is an open ledger. It is safe for concurrent use.
type Store struct {
	id     string
	now    func() time.Time
	poll   time.Duration
	log    *slog.Logger
	writes *gorm.DB // one connection
	reads  *gorm.DB
	jobs   chan *job
	stop   chan struct{}
	wg     sync.WaitGroup

	mu      sync.Mutex // guards what follows
	clock   *clock     // nil: never stepped. Only the writer changes it
	closed  bool
	changed chan struct{}
}

// Open opens the ledger at a URL, making it and bringing its schema up to date as needed.
// "sqlite:///var/lib/sandbox/ledger.db" is a file. Errors: Invalid for a URL that cannot be
// used, Conflict for a ledger of a newer program, Unavailable.
func Open(ctx context.Context, rawURL string, o Options) (*Store, error) {
	if o.Now == nil {
		o.Now, o.Boot, o.BootID = time.Now, sinceBoot, thisBoot()
	}
	if o.IDs == nil {
		o.IDs = sandbox.RandomIDs
	}
	if o.Poll == 0 {
		o.Poll = 100 * time.Millisecond
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.NewTextHandler(io.Discard, nil))
	}
	u, err := url.Parse(rawURL)
	if err != nil {
		return nil, sandbox.Errorf(sandbox.Invalid, "ledger URL: %w; write it as sqlite:///absolute/path/ledger.db", err)
	}
	switch u.Scheme {
	case "sqlite":
		return openSQLite(ctx, u, o)
	case "postgres", "postgresql":
		return nil, sandbox.Errorf(sandbox.Invalid, "ledger URL: PostgreSQL is not built yet; use sqlite:///absolute/path/ledger.db")
	default:
		return nil, sandbox.Errorf(sandbox.Invalid, "ledger URL %q: write it as sqlite:///absolute/path/ledger.db", rawURL)
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

// Changed returns a channel that is closed at the next commit, by this process or, within
// Options.Poll, by another one. Take it before reading what is waited for.
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
	return errors.Join(closeDB(s.reads), closeDB(s.writes))
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
	db := s.reads.WithContext(ctx).Begin()
	if db.Error != nil {
		return unavailable("reading the ledger", db.Error)
	}
	defer db.Rollback()
	return fn(&Tx{db: db, Now: At(s.now())})
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
	// events are appended together when the transaction is committed.
	events []Event
}

// first loads one row by a condition, or returns nil when there is none.
func first[T any](tx *Tx, query string, args ...any) (*T, error) {
	var rows []T
	if err := tx.db.Where(query, args...).Limit(1).Find(&rows).Error; err != nil {
		return nil, unavailable("reading the ledger", err)
	}
	if len(rows) == 0 {
		return nil, nil
	}
	return &rows[0], nil
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

func (tx *Tx) save(row any) error {
	return unavailable("writing to the ledger", tx.db.Save(row).Error)
}

// unavailable gives a database error its code. The cause stays visible to errors.Is.
func unavailable(what string, err error) error {
	if err == nil {
		return nil
	}
	if errors.Is(err, gorm.ErrDuplicatedKey) {
		return sandbox.Errorf(sandbox.Conflict, "%s: the row exists already: %w", what, err)
	}
	return sandbox.Errorf(sandbox.Unavailable, "%s: %w (retry; if it persists look at the disk and the permissions of the database)", what, err)
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
