package ledger

import (
	"context"
	"errors"
	"runtime/debug"

	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// maxBatch bounds one commit, so that the first of a burst does not wait for all of it.
const maxBatch = 256

// job is one Write that waits for its commit.
type job struct {
	ctx  context.Context
	fn   func(tx *Tx) error
	done chan error
}

// Write runs fn in a transaction and returns once it is durable. When fn fails, its changes
// are undone and its error is returned. fn may run later than ctx ends only if it had begun.
func (s *Store) Write(ctx context.Context, fn func(tx *Tx) error) error {
	j := &job{ctx: ctx, fn: fn, done: make(chan error, 1)}
	select {
	case s.jobs <- j:
	case <-s.stop:
		return errClosed
	case <-ctx.Done():
		return sandbox.Errorf(sandbox.Unavailable, "writing to the ledger: %w", ctx.Err())
	}
	// The answer is awaited even past ctx: once begun, the outcome must be known.
	return <-j.done
}

// startWriting starts the writer of a store that is otherwise at work.
func (s *Store) startWriting(ctx context.Context) (*Store, error) {
	s.wg.Add(1)
	go s.writer()
	if s.clock != nil { // it may have been stepped unseen
		if err := s.Write(ctx, func(*Tx) error { return nil }); err != nil {
			return nil, errors.Join(err, s.Close())
		}
	}
	return s, nil
}

// writer commits jobs until the store is closed.
func (s *Store) writer() {
	defer s.wg.Done()
	for {
		select {
		case <-s.stop:
			return
		case j := <-s.jobs:
			s.commit(s.batch(j))
		}
	}
}

// batch adds to the first job those that wait already.
func (s *Store) batch(first *job) []*job {
	jobs := []*job{first}
	for len(jobs) < maxBatch {
		select {
		case j := <-s.jobs:
			jobs = append(jobs, j)
		default:
			return jobs
		}
	}
	return jobs
}

func (s *Store) commit(jobs []*job) {
	results, err := s.transact(jobs)
	s.note(err)
	for i, j := range jobs {
		if err != nil {
			results[i] = err // nothing of the batch is known to be stored
		}
		j.done <- results[i]
	}
	s.notify()
}

// transact runs jobs in one transaction. It returns the outcome of each, or the error for which
// none of them counts.
func (s *Store) transact(jobs []*job) ([]error, error) {
	results := make([]error, len(jobs))
	if err := s.refusal(); err != nil {
		return results, err
	}
	ctx, cancel := s.db.bounded(context.Background())
	defer cancel()
	db := s.writes.WithContext(ctx).Begin()
	if db.Error != nil {
		return results, unavailable("beginning to write to the ledger", db.Error)
	}
	defer db.Rollback() // without effect once it is committed
	first, err := s.db.begin(db)
	if err != nil {
		return results, unavailable("beginning to write to the ledger", err)
	}
	if err := first.checkProgram(); err != nil {
		return results, err
	}
	tx := &Tx{db: db, Now: s.moment(first), changes: make(changes)}
	seen, err := s.checkClock(tx)
	if err != nil {
		return results, err
	}
	alone := len(jobs) == 1
	for i, j := range jobs {
		if results[i] = s.refusalOf(j.ctx); results[i] != nil {
			continue
		}
		whole, err := j.run(tx, alone)
		if s.note(err) {
			return results, err
		}
		if !whole {
			return results, sandbox.Errorf(sandbox.Unavailable, "committing to the ledger: the database undid the whole commit after the failure of one change: %w", err)
		}
		results[i] = err
	}
	if alone && results[0] != nil {
		return results, nil // nothing else is in the transaction: all of it is undone
	}
	if err := tx.flushEvents(); err != nil {
		return results, err
	}
	if err := db.Commit().Error; err != nil {
		return results, s.db.committing(err)
	}
	s.keepClock(seen)
	return results, s.checkFiles()
}

// checkClock moves what the clock timed if it was stepped, and returns what is known of it once the
// transaction is committed.
func (s *Store) checkClock(tx *Tx) (clock, error) {
	if s.clock == nil {
		return clock{}, nil
	}
	return s.clock.check(tx)
}

func (s *Store) keepClock(seen clock) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.clock != nil {
		*s.clock = seen
	}
}

// begun is what a commit learns as it begins.
type begun struct {
	// Moment is the database's clock once there is no other writer, 0 when it is not the ledger's clock.
	Moment Time
	// OldestProgram is ledgers.min_reader.
	OldestProgram int64
}

// checkProgram refuses to write to a ledger that a newer program has changed.
func (b begun) checkProgram() error {
	if b.OldestProgram <= schemaVersion {
		return nil
	}
	return sandbox.Errorf(sandbox.Conflict, "the ledger was upgraded beneath this program: it needs a program of schema %d or newer, and this one knows schema %d; upgrade and restart this program", b.OldestProgram, schemaVersion)
}

// moment is when everything in a commit happens.
func (s *Store) moment(b begun) Time {
	if b.Moment != 0 {
		return b.Moment
	}
	return At(s.now())
}

// run makes a job's changes. Beside others, its failure undoes its own only, or else the transaction is
// not whole any more; alone, it needs no savepoint.
func (j *job) run(tx *Tx, alone bool) (whole bool, err error) {
	if err := j.ctx.Err(); err != nil {
		return true, sandbox.Errorf(sandbox.Unavailable, "writing to the ledger: %w", err)
	}
	tx.actor = sandbox.ActorOf(j.ctx)
	if alone {
		return true, recovered(tx, j.fn)
	}
	return savepoint(tx, "job", j.fn)
}

// recovered runs fn and makes its panic an error.
func recovered(tx *Tx, fn func(tx *Tx) error) (err error) {
	defer func() {
		if v := recover(); v != nil {
			err = sandbox.Errorf(sandbox.Internal, "a ledger transaction panicked: %v\n%s", v, debug.Stack())
		}
	}()
	return fn(tx)
}

// Part runs fn so that its failure undoes the changes of fn only, and returns that failure as refused. err is set
// when the transaction cannot go on: its caller returns it.
func (tx *Tx) Part(fn func(tx *Tx) error) (refused, err error) {
	whole, refused := savepoint(tx, "part", fn)
	if !whole {
		return nil, refused
	}
	return refused, nil
}

// savepoint runs fn so that its failure undoes its own changes only. When the database has undone the
// whole transaction by itself, as SQLite does when its disk is full, nothing of it is left to go on with:
// what followed would be stored at once and one by one.
func savepoint(tx *Tx, name string, fn func(tx *Tx) error) (whole bool, err error) {
	if err := tx.db.Exec("SAVEPOINT " + name).Error; err != nil {
		return false, unavailable("writing to the ledger", err)
	}
	events := len(tx.events)
	err = recovered(tx, fn)
	if err == nil {
		err = unavailable("writing to the ledger", tx.db.Exec("RELEASE SAVEPOINT "+name).Error)
	}
	if err == nil {
		return true, nil
	}
	tx.events = tx.events[:events]
	clear(tx.changes) // some of it is undone
	undone := tx.db.Exec("ROLLBACK TO SAVEPOINT " + name).Error
	if undone == nil {
		undone = tx.db.Exec("RELEASE SAVEPOINT " + name).Error
	}
	return undone == nil, err
}
