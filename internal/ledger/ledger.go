package ledger

import (
	"context"

	"gorm.io/gorm"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/ledger/micro"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/ledger/storage"
)

// Options configure a ledger. Their zero value opens one for a program.
type Options storage.Options

// Store is an open ledger. It is safe for concurrent use.
type Store struct{ *storage.Store }

// Open opens the ledger at a URL. It creates it or upgrades its schema if needed. Errors: as storage.Open.
func Open(ctx context.Context, rawURL string, o Options) (*Store, error) {
	s, err := storage.Open(ctx, rawURL, storage.Options(o), begin)
	if err != nil {
		return nil, err
	}
	return &Store{s}, nil
}

// Write runs fn in a transaction and returns once it is durable. If fn fails, its changes are undone and
// Write returns its error. fn may outlast ctx only if it had started before.
func (s *Store) Write(ctx context.Context, fn func(tx *Tx) error) error {
	return s.Store.Write(ctx, work(fn))
}

// Read runs fn in one snapshot of the ledger.
func (s *Store) Read(ctx context.Context, fn func(tx *Tx) error) error {
	return s.Store.Read(ctx, work(fn))
}

// work is what a caller does in a transaction.
type work func(tx *Tx) error

// Do implements storage.Work.
func (w work) Do(s storage.Session) error { return w(&s.(*session).Tx) } //nolint:forcetypeassert // begin makes all sessions

// Tx is one transaction.
type Tx struct {
	storage.Tx
	db *gorm.DB
	// events are appended together at the commit.
	events []Event
	// Grown are the sums of kept output that have grown in the transaction and were not yet compared with the bounds.
	Grown []KeptSum
	// updating has the sandboxes that Update is changing.
	updating []string
}

// Part runs fn so that a failure rolls back only the changes of fn, and is returned as refused. err is set if
// the transaction cannot continue: the caller must return it.
func (tx *Tx) Part(fn func(tx *Tx) error) (refused, err error) { return storage.Part(tx, work(fn)) }

// session is a transaction as its store sees it.
type session struct{ Tx }

func begin(tx storage.Tx) storage.Session {
	s := &session{Tx{Tx: tx}}
	s.db = storage.DB(s)
	return s
}

// Pending implements storage.Session: events wait for the commit.
func (s *session) Pending() int { return len(s.events) }

// Drop implements storage.Session.
func (s *session) Drop(n int) { s.events = s.events[:n] }

// Flush implements storage.Session.
func (s *session) Flush() error { return s.flushEvents() }

// StepClock implements storage.Session.
func (s *session) StepClock(step micro.Span) error { return s.moveClock(step) }

// Restored implements storage.Session.
func (s *session) Restored(backedUpAt micro.Time) error {
	if err := s.activate(); err != nil {
		return err
	}
	return s.emitRestored(restored{backedUpAt.Time()})
}
