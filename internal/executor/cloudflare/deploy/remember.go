package deploy

import (
	"context"
	"sync"
	"time"
)

// What the API has answered is kept: a reconciler looks every 10 s, and an account may ask 1,200 times in 5 minutes for
// all that it does (developers.cloudflare.com/fundamentals/api/reference/limits, read 2026-11).
const (
	// subdomainKept is for how long the account's subdomain is taken for granted: it is chosen once.
	subdomainKept = time.Hour
	// routeKept is for how long a Worker's address is. It is made of the Worker's name; one that does not answer is doubted.
	routeKept = 24 * time.Hour
)

// memory keeps answers that hardly ever change. Its zero value is empty.
type memory struct {
	mu        sync.Mutex // guards what follows
	subdomain kept[string]
	routes    map[string]kept[route]
}

// kept is an answer and when it is to be asked for again.
type kept[T any] struct {
	answer T
	until  time.Time
}

func (m *memory) route(name string, now time.Time) (route, bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	k, ok := m.routes[name]
	return k.answer, ok && now.Before(k.until)
}

// keep keeps the route of a Worker that answers.
func (m *memory) keep(name string, r route, now time.Time) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if !r.Enabled {
		delete(m.routes, name)
		return
	}
	if m.routes == nil {
		m.routes = make(map[string]kept[route])
	}
	m.routes[name] = kept[route]{r, now.Add(routeKept)}
}

// Doubt implements cloudflare.Deployer.
func (d *Deployer) Doubt(name string) {
	d.memory.mu.Lock()
	defer d.memory.mu.Unlock()
	delete(d.memory.routes, name)
}

// keptSubdomain is subdomain, asked for once an hour. That there is none is not kept.
func (d *Deployer) keptSubdomain(ctx context.Context) (string, error) {
	d.memory.mu.Lock()
	k := d.memory.subdomain
	d.memory.mu.Unlock()
	if d.now().Before(k.until) {
		return k.answer, nil
	}
	found, err := d.subdomain(ctx)
	if err == nil && found != "" {
		d.memory.mu.Lock()
		defer d.memory.mu.Unlock()
		d.memory.subdomain = kept[string]{found, d.now().Add(subdomainKept)}
	}
	return found, err
}

// keptRoute is routeOf, asked for once a day of a Worker that answers.
func (d *Deployer) keptRoute(ctx context.Context, name string) (route, error) {
	if r, ok := d.memory.route(name, d.now()); ok {
		return r, nil
	}
	r, err := d.routeOf(ctx, name)
	if err == nil {
		d.memory.keep(name, r, d.now())
	}
	return r, err
}
