package ledger

import (
	"context"
	"runtime/debug"

	"gorm.io/gorm"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/sandbox"
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
	results := make([]error, len(jobs))
	var seen clock
	err := s.writes.Transaction(func(db *gorm.DB) (err error) {
		tx := &Tx{db: db, Now: At(s.now())}
		if s.clock != nil {
			if seen, err = s.clock.check(tx); err != nil {
				return err
			}
		}
		for i, j := range jobs {
			if err := j.ctx.Err(); err != nil {
				results[i] = sandbox.Errorf(sandbox.Unavailable, "writing to the ledger: %w", err)
				continue
			}
			results[i] = savepoint(tx, j.fn)
		}
		return tx.flushEvents()
	})
	if err != nil {
		err = unavailable("committing to the ledger", err)
	} else if s.clock != nil {
		s.mu.Lock()
		*s.clock = seen
		s.mu.Unlock()
	}
	for i, j := range jobs {
		if err != nil {
			results[i] = err // nothing of the batch is stored
		}
		j.done <- results[i]
	}
	s.notify()
}

// savepoint runs fn so that its failure undoes its own changes only.
func savepoint(tx *Tx, fn func(tx *Tx) error) (err error) {
	const name = "job"
	if err := tx.db.Exec("SAVEPOINT " + name).Error; err != nil {
		return unavailable("writing to the ledger", err)
	}
	events := len(tx.events)
	defer func() {
		if v := recover(); v != nil {
			err = sandbox.Errorf(sandbox.Internal, "a ledger transaction panicked: %v\n%s", v, debug.Stack())
		}
		if err != nil {
			tx.events = tx.events[:events]
			tx.db.Exec("ROLLBACK TO " + name)
		}
		if e := tx.db.Exec("RELEASE " + name).Error; err == nil {
			err = unavailable("writing to the ledger", e)
		}
	}()
	return fn(tx)
}
