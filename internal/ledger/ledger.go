package ledger

import (
	"context"

	"gorm.io/gorm"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/ledger/micro"
)

// Options configure a ledger. Their zero value opens one for a program.
type Options rawOptions

// Store is an open ledger. It is safe for concurrent use.
type Store struct{ *rawStore }

// Open opens the ledger at a URL. It creates it or upgrades its schema if needed. Errors: as storage.Open.
func Open(ctx context.Context, rawURL string, o Options) (*Store, error) {
	s, err := openRaw(ctx, rawURL, rawOptions(o), begin)
	if err != nil {
		return nil, err
	}
	return &Store{s}, nil
}

// Write runs fn in a transaction and returns once it is durable. If fn fails, its changes are undone and
// Write returns its error. fn may outlast ctx only if it had started before.
func (s *Store) Write(ctx context.Context, fn func(tx *Tx) error) error {
	return s.rawStore.Write(ctx, work(fn))
}

// Read runs fn in one snapshot of the ledger.
func (s *Store) Read(ctx context.Context, fn func(tx *Tx) error) error {
	return s.rawStore.Read(ctx, work(fn))
}

// work is what a caller does in a transaction.
type work func(tx *Tx) error

// Do implements storage.Work.
func (w work) Do(s rawSession) error { return w(&s.(*session).Tx) } //nolint:forcetypeassert // begin makes all sessions

// Tx is one transaction.
type Tx struct {
	rawTx
	db *gorm.DB
	// events are appended together at the commit.
	events []Event
	// grown are sums of output that have grown.
	grown []KeptSum
	// updating are the sandboxes that Update is changing.
	updating []string
}

// Part runs fn so that a failure rolls back only the changes of fn, and is returned as refused. err is set if
// the transaction cannot continue: the caller must return it.
func (tx *Tx) Part(fn func(tx *Tx) error) (refused, err error) { return doPart(tx, work(fn)) }

// session is a transaction as its store sees it.
type session struct{ Tx }

func begin(tx rawTx) rawSession {
	s := &session{Tx{rawTx: tx}}
	s.db = dbOf(s)
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

// Upgraded implements storage.Session.
func (s *session) Upgraded(schema int64, o rawOptions) error {
	return s.reportNamespaces(schema, o.Logger)
}
