package storage

import (
	"context"
	"errors"
	"runtime/debug"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/ledger/micro"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/ledger/migrations"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// maxBatch limits one commit, so that the first of a burst does not wait for all.
const maxBatch = 256

// job is one Write that waits for its commit.
type job struct {
	ctx  context.Context
	work Work
	done chan error
}

// Write runs work in a transaction and returns once it is durable. If the work fails, its changes are undone and Write
// returns its error. The work may outlast ctx only if it had started before.
func (s *Store) Write(ctx context.Context, w Work) error {
	j := &job{ctx: ctx, work: w, done: make(chan error, 1)}
	select {
	case s.jobs <- j:
	case <-s.stop:
		return errClosed
	case <-ctx.Done():
		return sandbox.Errorf(sandbox.Unavailable, "writing to the ledger: %w", ctx.Err())
	}
	// Wait for the answer even after ctx has ended: once started, the result must be known.
	return <-j.done
}

// startWriting starts the writer of a store.
func (s *Store) startWriting(ctx context.Context) (*Store, error) {
	s.wg.Add(1)
	go s.writer()
	if s.clock != nil { // it may have been stepped unnoticed
		if err := s.Write(ctx, idle); err != nil {
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

// batch adds the waiting jobs to the first one.
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
	results, done, err := s.transact(jobs)
	s.note(err)
	for i, j := range jobs {
		if err != nil {
			results[i] = err // it is unknown whether the batch is stored
		}
		j.done <- results[i]
	}
	if done.committed {
		s.notify(done.keptSchedule)
	}
}

// done is the result of a transaction.
type done struct {
	// committed: its changes are stored, or may be.
	committed bool
	// keptSchedule: all jobs kept the schedule.
	keptSchedule bool
}

// transact runs jobs in one transaction. It returns the result of each, or the error that invalidates all.
func (s *Store) transact(jobs []*job) (results []error, _ done, err error) {
	results = make([]error, len(jobs))
	if err := s.refusal(); err != nil {
		return results, done{}, err
	}
	ctx, cancel := s.db.bounded(context.Background())
	defer cancel()
	db := s.writes.WithContext(ctx).Begin()
	if db.Error != nil {
		return results, done{}, Error("beginning to write to the ledger", db.Error)
	}
	defer db.Rollback() // no effect after the commit
	first, err := s.db.begin(db)
	if err != nil {
		return results, done{}, Error("beginning to write to the ledger", err)
	}
	if err := first.checkProgram(); err != nil {
		return results, done{}, err
	}
	session := newSession(s.begin, Tx{db: db, Now: s.moment(first), changes: make(changes)})
	tx := session.core()
	seen, err := s.checkClock(tx)
	if err != nil {
		return results, done{}, err
	}
	alone, kept := len(jobs) == 1, !s.isStepped(seen)
	for i, j := range jobs {
		if results[i] = s.refusalOf(j.ctx); results[i] != nil {
			continue
		}
		whole, err := j.run(tx, alone)
		if s.note(err) {
			return results, done{}, err
		}
		if !whole {
			return results, done{}, sandbox.Errorf(sandbox.Unavailable,
				"committing to the ledger: the database rolled back the whole commit after one change failed: %w", err)
		}
		results[i] = err
		kept = kept && (tx.keepsSchedule || err != nil)
	}
	if alone && results[0] != nil {
		return results, done{}, nil // the transaction contains nothing else, so all of it is rolled back
	}
	if err := session.Flush(); err != nil {
		return results, done{}, err
	}
	if err := db.Commit().Error; err != nil {
		unknown, err := s.db.committing(err)
		return results, done{committed: unknown}, err
	}
	s.keepClock(seen)
	return results, done{committed: true, keptSchedule: kept}, s.checkFiles()
}

// checkClock moves all times if the clock was stepped, and returns the state of the clock after the commit.
func (s *Store) checkClock(tx *Tx) (clock, error) {
	if s.clock == nil {
		return clock{}, nil
	}
	return s.clock.check(tx)
}

// isStepped reports whether a transaction found the clock stepped and moved due times.
func (s *Store) isStepped(seen clock) bool {
	return s.clock != nil && (!s.clock.known || s.clock.steps != seen.steps)
}

func (s *Store) keepClock(seen clock) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.clock != nil {
		*s.clock = seen
	}
}

// begun is what a commit reads at its start.
type begun struct {
	// Moment is the database's time once there is no other writer, 0 if it is not the ledger's clock.
	Moment micro.Time
	// OldestProgram is ledgers.min_reader.
	OldestProgram int64
	// ServerProcess is the id of the server process, 0 without a server.
	ServerProcess uint32
}

// checkProgram refuses writes to a ledger that a newer program has changed.
func (b begun) checkProgram() error {
	if b.OldestProgram <= migrations.Newest {
		return nil
	}
	return sandbox.Errorf(sandbox.Conflict, "the ledger was upgraded while this program used it: it needs a program "+
		"of schema %d or newer, but this one has schema %d; upgrade and restart this program",
		b.OldestProgram, migrations.Newest)
}

// moment is the time of everything in a commit.
func (s *Store) moment(b begun) micro.Time {
	if b.Moment != 0 {
		return b.Moment
	}
	return micro.At(s.now())
}

// run makes a job's changes. With several jobs in the transaction, a failure rolls back only this job's changes. If
// that is impossible, the transaction is no longer whole. A single job needs no savepoint.
func (j *job) run(tx *Tx, alone bool) (whole bool, err error) {
	if err := j.ctx.Err(); err != nil {
		return true, sandbox.Errorf(sandbox.Unavailable, "writing to the ledger: %w", err)
	}
	tx.actor, tx.keepsSchedule = sandbox.ActorOf(j.ctx), false
	if alone {
		return true, recovered(tx.session, j.work)
	}
	return savepoint(tx, "job", j.work)
}

// recovered runs work and converts a panic to an error.
func recovered(s Session, w Work) (err error) {
	defer func() {
		if v := recover(); v != nil {
			err = sandbox.Errorf(sandbox.Internal, "a ledger transaction panicked: %v\n%s", v, debug.Stack())
		}
	}()
	return w.Do(s)
}

// Part runs work so that a failure rolls back only its own changes, and is returned as refused. err is set if the
// transaction cannot continue: the caller must return it.
func Part(tx Handle, w Work) (refused, err error) {
	whole, refused := savepoint(tx.core(), "part", w)
	if !whole {
		return nil, refused
	}
	return refused, nil
}

// savepoint runs work so that a failure rolls back only its own changes. The database may have rolled back the whole
// transaction on its own, as SQLite does on a full disk. Then the transaction cannot continue: later statements would
// be stored immediately, one by one.
func savepoint(tx *Tx, name string, w Work) (whole bool, err error) {
	if err := tx.db.Exec("SAVEPOINT " + name).Error; err != nil {
		return false, Error("writing to the ledger", err)
	}
	pending := tx.session.Pending()
	err = recovered(tx.session, w)
	if err == nil {
		err = Error("writing to the ledger", tx.db.Exec("RELEASE SAVEPOINT "+name).Error)
	}
	if err == nil {
		return true, nil
	}
	tx.session.Drop(pending)
	clear(tx.changes) // some of them are undone
	undone := tx.db.Exec("ROLLBACK TO SAVEPOINT " + name).Error
	if undone == nil {
		undone = tx.db.Exec("RELEASE SAVEPOINT " + name).Error
	}
	return undone == nil, err
}
