package loop

import (
	"context"
	"sync"
	"time"

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
}

func (d *dispatcher) run(ctx context.Context) {
	l := d.loop
	for ctx.Err() == nil {
		scheduled := l.engine.Scheduled()
		ids, next, err := l.engine.Due(ctx, d.backend, l.c.Workers*2)
		if l.passed(ctx, PassDue, d.backend, err) {
			l.c.Logger.Error("loop: listing due sandboxes", "backend", d.backend, "error", err)
		}
		for _, id := range ids {
			d.start(ctx, id)
		}
		d.wait(ctx, scheduled, next)
	}
}

// start starts a worker for a sandbox, unless all workers are busy or one already works on it.
func (d *dispatcher) start(ctx context.Context, id string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if _, ok := d.working[id]; ok || len(d.working) >= d.loop.c.Workers {
		return
	}
	d.working[id] = struct{}{}
	d.loop.wg.Go(func() {
		defer d.finish(id)
		// The engine has recorded and logged the failure of the step.
		if err := d.loop.engine.Work(ctx, id); err != nil {
			d.loop.c.Logger.Debug("loop: step failed", "sandbox", id, "error", err)
		}
	})
}

func (d *dispatcher) busy() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return len(d.working) >= d.loop.c.Workers
}

func (d *dispatcher) finish(id string) {
	d.mu.Lock()
	delete(d.working, id)
	d.mu.Unlock()
	select {
	case d.freed <- struct{}{}:
	default:
	}
}

// wait returns when there may be work and a free worker.
func (d *dispatcher) wait(ctx context.Context, scheduled <-chan struct{}, next time.Time) {
	l := d.loop
	pause := l.c.Poll
	if !next.IsZero() {
		pause = min(pause, max(next.Sub(l.engine.Now()), 5*time.Millisecond))
	}
	if d.busy() {
		pause, scheduled = l.c.Poll, nil
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
