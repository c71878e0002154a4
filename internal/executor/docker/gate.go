package docker

import (
	"context"
	"sync"

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
}

// everybody is the weight of a pause: no start beside it.
const everybody = 1 << 30

// start waits until a process may be started in a container. leave must be called once it runs.
func (g *gates) start(ctx context.Context, name string) (leave func(), err error) {
	return g.pass(ctx, name, 1)
}

// pause waits until a container may be paused. leave must be called once it is.
func (g *gates) pause(ctx context.Context, name string) (leave func(), err error) {
	return g.pass(ctx, name, everybody)
}

func (g *gates) pass(ctx context.Context, name string, weight int64) (leave func(), err error) {
	g.mu.Lock()
	a := g.of[name]
	if a == nil {
		a = &gate{passing: semaphore.NewWeighted(everybody)}
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
