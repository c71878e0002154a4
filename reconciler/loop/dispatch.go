package loop

import (
	"context"
	"maps"
	"sync"
	"time"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/lifecycle"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// dispatcher passes the due sandboxes of one backend to its workers. Each backend has its own workers, so that a
// hanging backend does not block others.
type dispatcher struct {
	loop    *Loop
	backend sandbox.Backend
	freed   chan struct{}

	mu      sync.Mutex // guards the fields below
	working map[string]struct{}
	// resting are the sandboxes whose last step failed, and when they may be tried again. If the ledger refused to
	// store the failure, their rows are due all the time.
	resting map[string]time.Time
}

func newDispatcher(l *Loop, b sandbox.Backend) *dispatcher {
	return &dispatcher{loop: l, backend: b, freed: make(chan struct{}, 1),
		working: make(map[string]struct{}), resting: make(map[string]time.Time)}
}

func (d *dispatcher) run(ctx context.Context) {
	l := d.loop
	for ctx.Err() == nil {
		scheduled := l.leases.Scheduled()
		ids, next, err := l.leases.ListDue(ctx, d.backend, l.c.Workers*2+d.rested())
		if l.passed(ctx, PassDue, d.backend, err) {
			l.c.Logger.Error("loop: listing due sandboxes", "backend", d.backend, "error", err)
		}
		for _, id := range ids {
			d.start(ctx, id)
		}
		d.wait(ctx, scheduled, next)
	}
}

// rested forgets the sandboxes that have rested, and returns how many still rest.
func (d *dispatcher) rested() int {
	d.mu.Lock()
	defer d.mu.Unlock()
	now := time.Now()
	maps.DeleteFunc(d.resting, func(_ string, until time.Time) bool { return !until.After(now) })
	return len(d.resting)
}

// start starts a worker for a sandbox, unless it rests, all workers are busy or one already works on it.
func (d *dispatcher) start(ctx context.Context, id string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	_, works := d.working[id]
	_, rests := d.resting[id]
	if works || rests || len(d.working) >= d.loop.c.Workers {
		return
	}
	d.working[id] = struct{}{}
	d.loop.wg.Go(func() {
		// The engine has recorded and logged the failure of the step, unless the ledger refused that.
		err := d.loop.leases.Work(ctx, id)
		if err != nil {
			d.loop.c.Logger.Debug("loop: step failed", "sandbox", id, "error", err)
		}
		d.finish(id, err != nil)
	})
}

func (d *dispatcher) busy() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return len(d.working) >= d.loop.c.Workers
}

func (d *dispatcher) finish(id string, failed bool) {
	d.mu.Lock()
	delete(d.working, id)
	if failed {
		d.resting[id] = time.Now().Add(lifecycle.FirstRetry)
	}
	d.mu.Unlock()
	select {
	case d.freed <- struct{}{}:
	default:
	}
}

// shortestRest returns when the next sandbox has rested; ok is false if none rests.
func (d *dispatcher) shortestRest() (rest time.Duration, ok bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, until := range d.resting {
		if left := time.Until(until); !ok || left < rest {
			rest, ok = left, true
		}
	}
	return rest, ok
}

// wait returns when there may be work and a free worker.
func (d *dispatcher) wait(ctx context.Context, scheduled <-chan struct{}, next time.Time) {
	l := d.loop
	pause := l.c.Poll
	if !next.IsZero() {
		pause = min(pause, max(next.Sub(l.leases.Now()), 5*time.Millisecond))
	}
	if d.busy() {
		pause, scheduled = l.c.Poll, nil
	} else if rest, ok := d.shortestRest(); ok {
		pause = min(pause, rest)
	}
	timer := time.NewTimer(pause)
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-scheduled:
	case <-d.freed:
	case <-timer.C:
	}
}
