package docker

import (
	"context"
	"errors"
	"maps"
	"sync"
	"time"

	"golang.org/x/sync/semaphore"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/sandbox"
)

// gates keep the pause of a container and the start of a process in it apart. An Engine 20.10 that
// freezes a process in its start waits for that process for ever, and so does whoever looks at the
// container meanwhile: then it can neither be thawed nor removed. One program has one gate for a
// container, so several that use one sandbox at once must see to it themselves.
type gates struct {
	mu sync.Mutex // guards what follows
	of map[string]*gate
}

type gate struct {
	passing *semaphore.Weighted
	users   int // who pass or wait
	// starts are those under way, since when. Each channel is closed when its start is over.
	starts map[chan struct{}]time.Time
}

// errStarting: a process is being started in a container, and for long.
var errStarting = errors.New("the engine is starting a process in it, and does not finish")

// overdue is when a start, which takes under a second, may never end.
const overdue = 5 * time.Second

// everybody is the weight of a pause: no start beside it.
const everybody = 1 << 30

// start waits until a process may be started in a container. leave must be called once it runs.
func (g *gates) start(ctx context.Context, name string) (leave func(), err error) {
	pass, err := g.pass(ctx, name, 1)
	if err != nil {
		return nil, err
	}
	over := make(chan struct{})
	g.mu.Lock()
	a := g.of[name] // which stays until leave is called
	a.starts[over] = time.Now()
	g.mu.Unlock()
	return func() {
		g.mu.Lock()
		delete(a.starts, over)
		g.mu.Unlock()
		close(over)
		pass()
	}, nil
}

// settled waits until the starts in a container are over that are under way now. An engine that looks at a container
// meanwhile waits for them with the container's lock. When code in the sandbox has stopped such a start, that lock is
// never free again, and the engine can no longer end the sandbox.
// Errors: errStarting, at once for a start that is overdue; ctx's.
func (g *gates) settled(ctx context.Context, name string) error {
	g.mu.Lock()
	var starts map[chan struct{}]time.Time
	if a := g.of[name]; a != nil {
		starts = maps.Clone(a.starts)
	}
	g.mu.Unlock()
	for over, since := range starts {
		late := time.NewTimer(overdue - time.Since(since))
		select {
		case <-over:
			late.Stop()
		case <-late.C:
			return errStarting
		case <-ctx.Done():
			late.Stop()
			return ctx.Err()
		}
	}
	return nil
}

// pause waits until a container may be paused. leave must be called once it is.
func (g *gates) pause(ctx context.Context, name string) (leave func(), err error) {
	return g.pass(ctx, name, everybody)
}

func (g *gates) pass(ctx context.Context, name string, weight int64) (leave func(), err error) {
	g.mu.Lock()
	a := g.of[name]
	if a == nil {
		a = &gate{passing: semaphore.NewWeighted(everybody), starts: make(map[chan struct{}]time.Time)}
		g.of[name] = a
	}
	a.users++
	g.mu.Unlock()
	if err := a.passing.Acquire(ctx, weight); err != nil {
		g.drop(name, a)
		return nil, sandbox.Errorf(sandbox.Unavailable, "docker: container %s: not tried, it is being paused or a process is being started in it: %w", name, err)
	}
	return func() {
		a.passing.Release(weight)
		g.drop(name, a)
	}, nil
}

func (g *gates) drop(name string, a *gate) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if a.users--; a.users == 0 {
		delete(g.of, name)
	}
}
