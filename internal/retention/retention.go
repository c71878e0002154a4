// Package retention purges old data: destroyed sandboxes with their events and usage periods, events of
// environments, deliveries, resolved findings, and usage samples. Costs, generations and ids stay.
package retention

import (
	"context"
	"time"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/ledger"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/ledger/accounting"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/ledger/execs"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/ledger/micro"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/ledger/purge"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// Limits of the retention of destroyed sandboxes.
const (
	DefaultTTL = 720 * time.Hour
	MinTTL     = time.Hour
)

// Batch limits the sandboxes in one transaction of a purge.
const Batch = 20

// A purge pauses between two transactions, so that other writers can proceed.
const (
	batchEvents = 500
	batchRows   = 200
	pause       = 20 * time.Millisecond
)

// Purged counts the rows that a purge removed.
type Purged struct {
	Sandboxes, Environments, Events, Deliveries, Findings int64
}

func (r *Purged) add(o Purged) {
	r.Sandboxes += o.Sandboxes
	r.Environments += o.Environments
	r.Events += o.Events
	r.Deliveries += o.Deliveries
	r.Findings += o.Findings
}

// Step purges one batch of rows that ended before a time. It returns the counts and whether more may be left.
type Step func(tx *ledger.Tx, before micro.Time) (done Purged, more bool, err error)

// Service is safe for concurrent use, by any number of processes on one ledger.
type Service struct {
	store   *ledger.Store
	first   Step
	objects func(*execs.Exec) []string
}

// New returns a Service. A purge runs the step first before its own steps. objects returns the names of
// objects that a command left outside of the ledger.
func New(store *ledger.Store, first Step, objects func(*execs.Exec) []string) *Service {
	return &Service{store, first, objects}
}

// Purge removes everything that ended more than ttl ago. The names of destroyed environments stay. Any number
// of processes may call it at any time. An interruption is safe: each batch is complete. Errors: Invalid for
// a ttl below MinTTL.
func (s *Service) Purge(ctx context.Context, ttl time.Duration) (sum Purged, err error) {
	if ttl < MinTTL {
		return sum, sandbox.Errorf(sandbox.Invalid, "a cleanup ttl of %s is too short: it must be at least %s", ttl, MinTTL)
	}
	before, err := s.retainedSince(ctx, ttl)
	if err != nil {
		return sum, err
	}
	for _, step := range []Step{
		s.first,
		s.purgeSandboxes,
		rowsOf(purge.Purger.Environments, func(r *Purged) *int64 { return &r.Environments }),
		rowsOf(purge.Purger.EnvironmentEvents, func(r *Purged) *int64 { return &r.Events }),
		rowsOf(purge.Purger.Deliveries, func(r *Purged) *int64 { return &r.Deliveries }),
		rowsOf(purge.Purger.Findings, func(r *Purged) *int64 { return &r.Findings }),
	} {
		done, err := s.all(ctx, before, step)
		sum.add(done)
		if err != nil {
			return sum, err
		}
	}
	return sum, nil
}

// PurgeUsage removes usage samples older than sandbox.UsageKept, also of live sandboxes. Any number of
// processes may call it at any time.
func (s *Service) PurgeUsage(ctx context.Context) error {
	before, err := s.retainedSince(ctx, sandbox.UsageKept)
	if err != nil {
		return err
	}
	_, err = s.all(ctx, before, func(tx *ledger.Tx, before micro.Time) (_ Purged, more bool, err error) {
		n, err := purge.In(tx).UsageSamples(before, batchEvents)
		return Purged{}, n == batchEvents, err
	})
	return err
}

// retainedSince returns the time before which rows may be purged, given a ttl.
func (s *Service) retainedSince(ctx context.Context, ttl time.Duration) (before micro.Time, err error) {
	err = s.store.Read(ctx, func(tx *ledger.Tx) (err error) {
		before, err = purge.In(tx).RetainedSince(micro.SpanOf(sandbox.Duration(ttl)))
		return err
	})
	return before, err
}

// all repeats a step until it has removed everything.
func (s *Service) all(ctx context.Context, before micro.Time, step Step) (sum Purged, err error) {
	for {
		var done Purged
		var more bool
		err := s.store.Write(ctx, func(tx *ledger.Tx) (err error) {
			done, more, err = step(tx, before)
			return err
		})
		if err != nil {
			return sum, err
		}
		sum.add(done)
		if !more {
			return sum, nil
		}
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			return sum, ctx.Err()
		}
	}
}

// purgeSandboxes removes as many sandboxes as fit into a batch by their events. A sandbox with too many
// events first loses its events, over several batches.
func (s *Service) purgeSandboxes(tx *ledger.Tx, before micro.Time) (done Purged, more bool, err error) {
	rows, err := purge.In(tx).Purgeable(before, Batch)
	if err != nil || len(rows) == 0 {
		return done, false, err
	}
	found := len(rows)
	rows = rows[:fitting(rows)]
	if rows[0].LastSequence > batchEvents {
		if done.Events, err = purge.In(tx).Events(&rows[0], batchEvents); err != nil || done.Events == batchEvents {
			return done, true, err
		}
	}
	for _, purge := range []func([]string, int) (int64, error){
		execs.In(tx).PurgeSessionEvents, accounting.In(tx).PurgeUsageSamples,
	} {
		if n, err := purge(idsOf(rows), batchEvents); err != nil || n == batchEvents {
			return done, true, err
		}
	}
	events, err := purge.In(tx).Sandboxes(rows, s.objects)
	done.Sandboxes, done.Events = int64(len(rows)), done.Events+events
	return done, len(rows) < found || found == Batch, err
}

func idsOf(rows []ledger.Sandbox) []string {
	ids := make([]string, len(rows))
	for i := range rows {
		ids[i] = rows[i].ID
	}
	return ids
}

// fitting returns how many of the rows, at least one, together have at most one batch of events.
func fitting(rows []ledger.Sandbox) int {
	var events int64
	for i := range rows {
		if events += rows[i].LastSequence; i > 0 && events > batchEvents {
			return i
		}
	}
	return len(rows)
}

// rowsOf returns a step that removes rows of one kind.
func rowsOf(remove func(rows purge.Purger, before micro.Time, limit int) (int64, error),
	count func(*Purged) *int64) Step {
	return func(tx *ledger.Tx, before micro.Time) (done Purged, more bool, err error) {
		n, err := remove(purge.In(tx), before, batchRows)
		*count(&done) = n
		return done, n == batchRows, err
	}
}
