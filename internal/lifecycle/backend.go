package lifecycle

import (
	"context"
	"sync"
	"sync/atomic"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/driver"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/ledger"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// Backend is an executor and its connection. Reading the connection never waits: only reach asks the
// backend, one question at a time, and its callers wait by their own contexts.
type Backend struct {
	driver.Executor
	core    *Core    // owns the questions
	witness *witness // nil where an instance's id is its own
	link    atomic.Pointer[link]

	mu     sync.Mutex // guards changes of link, and what follows; never held while the backend is asked
	asking *question  // nil when none is under way
}

// link is a connection to a backend. It does not change.
type link struct {
	instance string
	// watchedSince is when the watch was established that reports every change since; 0 without one.
	watchedSince ledger.Time
}

// question asks a backend for its instance.
type question struct {
	answered chan struct{} // closed once the fields below are set
	instance string
	err      error
}

// Connected returns the instance that the connection leads to, "" without a connection.
func (b *Backend) Connected() string {
	if l := b.link.Load(); l != nil {
		return l.instance
	}
	return ""
}

// Reach returns the instance, and asks for it where there is no connection. Errors: Unavailable.
func (b *Backend) Reach(ctx context.Context) (string, error) {
	q := b.ask()
	select {
	case <-q.answered:
		return q.instance, q.err
	case <-ctx.Done():
		return "", sandbox.Errorf(sandbox.Unavailable, "connecting to backend %s: it has not answered yet: %w",
			b.Backend(), ctx.Err())
	}
}

// ask returns the question under way, and begins one where there is none. A connection is an answer.
func (b *Backend) ask() *question {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.asking != nil {
		return b.asking
	}
	q := &question{answered: make(chan struct{}), instance: b.Connected()}
	if q.instance != "" {
		close(q.answered)
		return q
	}
	if !b.core.Background(func() { b.answer(q) }) {
		q.err = ErrClosing
		close(q.answered)
		return q
	}
	b.asking = q
	return q
}

// answer asks the backend. The answer to a question that was forgotten meanwhile makes no connection.
func (b *Backend) answer(q *question) {
	defer close(q.answered)
	ctx, cancel := context.WithTimeout(b.core.life, instanceTimeout)
	defer cancel()
	q.instance, q.err = b.Instance(ctx)
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.asking != q {
		return
	}
	b.asking = nil
	if q.err == nil {
		b.link.Store(&link{instance: q.instance})
	}
}

// forget drops the connection after it broke: the next reach asks again.
func (b *Backend) forget() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.asking = nil
	b.link.Store(nil)
}

// HasWitness reports whether the instances of the backend are known by a witness.
func (b *Backend) HasWitness() bool { return b.witness != nil }

// watched notes that every change is reported from now on.
func (b *Backend) watched(since ledger.Time) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if l := b.link.Load(); l != nil {
		b.link.Store(&link{instance: l.instance, watchedSince: since})
	}
}

// lastThere returns until when a sandbox that is found missing now was there, as far as is known:
// until now if it had been seen since a watch reports every change, or else when it was last seen.
func (b *Backend) lastThere(s *ledger.Sandbox, now ledger.Time) ledger.Time {
	seen := max(s.ObservedAt, s.ReadyAt)
	if s.Origin.LedgerID != "" { // the watch reports what has our own label
		return seen
	}
	if l := b.link.Load(); l != nil && l.watchedSince != 0 && l.watchedSince <= seen {
		return now
	}
	return seen
}

// BackendFor returns the backend of a kind. Errors: Invalid.
func (c *Core) BackendFor(b sandbox.Backend) (*Backend, error) {
	x, ok := c.backends[b]
	if !ok {
		return nil, sandbox.Errorf(sandbox.Invalid,
			"backend %s is not configured here: name its account, with --%s-account or the provider's %s block", b, b, b)
	}
	return x, nil
}

// InReach returns the instances that are connected.
func (c *Core) InReach() []string {
	var instances []string
	for _, b := range c.backends {
		if instance := b.Connected(); instance != "" {
			instances = append(instances, instance)
		}
	}
	return instances
}
