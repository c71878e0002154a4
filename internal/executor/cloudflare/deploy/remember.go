package deploy

import (
	"context"
	"sync"
	"time"
)

// subdomainKept is how long the account's subdomain is cached: it is chosen only once. A reconciler polls every few
// seconds, and an account may make 1,200 calls in 5 minutes
// (developers.cloudflare.com/fundamentals/api/reference/limits, read 2026-11).
const subdomainKept = time.Hour

// memory caches answers of the API. Its zero value is empty.
type memory struct {
	mu        sync.Mutex // guards what follows
	subdomain kept[string]
	// doubted are the Workers that did not answer at their URL: they may have no route.
	doubted map[string]bool
}

// kept is a cached answer with its expiry.
type kept[T any] struct {
	answer T
	until  time.Time
}

func (m *memory) doubts(name string) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.doubted[name]
}

// trust records that a Worker has a route.
func (m *memory) trust(name string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.doubted, name)
}

// Doubt implements cloudflare.Deployer.
func (d *Deployer) Doubt(name string) {
	d.memory.mu.Lock()
	defer d.memory.mu.Unlock()
	if d.memory.doubted == nil {
		d.memory.doubted = make(map[string]bool)
	}
	d.memory.doubted[name] = true
}

// keptSubdomain caches subdomain for an hour. Concurrent calls share one request. An empty answer is not cached.
func (d *Deployer) keptSubdomain(ctx context.Context) (string, error) {
	if known, ok := d.knownSubdomain(); ok {
		return known, nil
	}
	select {
	case d.asking <- struct{}{}:
		defer func() { <-d.asking }()
	case <-ctx.Done():
		return "", d.failSubdomain(ctx.Err())
	}
	if known, ok := d.knownSubdomain(); ok { // another call has asked
		return known, nil
	}
	found, err := d.subdomain(ctx)
	if err == nil && found != "" {
		d.memory.mu.Lock()
		defer d.memory.mu.Unlock()
		d.memory.subdomain = kept[string]{found, d.now().Add(subdomainKept)}
	}
	return found, err
}

func (d *Deployer) knownSubdomain() (known string, ok bool) {
	d.memory.mu.Lock()
	defer d.memory.mu.Unlock()
	k := d.memory.subdomain
	return k.answer, d.now().Before(k.until)
}
