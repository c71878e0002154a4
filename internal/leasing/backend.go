package leasing

import (
	"context"
	"sync"
	"sync/atomic"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/driver"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/ledger"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// backend is an executor and its connection. Reading the connection never waits: only reach asks the
// backend, one question at a time, and its callers wait by their own contexts.
type backend struct {
	driver.Executor
	engine    *Engine   // owns the questions
	witness   *witness  // nil where an instance's id is its own
	unmetered sync.Once // logs that usage is not compared
	link      atomic.Pointer[link]

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

// instance returns the instance that the connection leads to, "" without a connection.
func (b *backend) instance() string {
	if l := b.link.Load(); l != nil {
		return l.instance
	}
	return ""
}

// reach returns the instance, and asks for it where there is no connection. Errors: Unavailable.
func (b *backend) reach(ctx context.Context) (string, error) {
	q := b.ask()
	select {
	case <-q.answered:
		return q.instance, q.err
	case <-ctx.Done():
		return "", sandbox.Errorf(sandbox.Unavailable, "connecting to backend %s: it has not answered yet: %w", b.Backend(), ctx.Err())
	}
}

// ask returns the question under way, and begins one where there is none. A connection is an answer.
func (b *backend) ask() *question {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.asking != nil {
		return b.asking
	}
	q := &question{answered: make(chan struct{}), instance: b.instance()}
	if q.instance != "" {
		close(q.answered)
		return q
	}
	if !b.engine.background(func() { b.answer(q) }) {
		q.err = errClosing
		close(q.answered)
		return q
	}
	b.asking = q
	return q
}

// answer asks the backend. The answer to a question that was forgotten meanwhile makes no connection.
func (b *backend) answer(q *question) {
	defer close(q.answered)
	ctx, cancel := context.WithTimeout(b.engine.life, instanceTimeout)
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
func (b *backend) forget() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.asking = nil
	b.link.Store(nil)
}

// watched notes that every change is reported from now on.
func (b *backend) watched(since ledger.Time) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if l := b.link.Load(); l != nil {
		b.link.Store(&link{instance: l.instance, watchedSince: since})
	}
}

// lastThere returns until when a sandbox that is found missing now was there, as far as is known:
// until now if it had been seen since a watch reports every change, or else when it was last seen.
func (b *backend) lastThere(s *ledger.Sandbox, now ledger.Time) ledger.Time {
	seen := max(s.ObservedAt, s.ReadyAt)
	if s.Origin.LedgerID != "" { // the watch reports what has our own label
		return seen
	}
	if l := b.link.Load(); l != nil && l.watchedSince != 0 && l.watchedSince <= seen {
		return now
	}
	return seen
}

// backendFor returns the backend of a kind. Errors: Invalid.
func (e *Engine) backendFor(b sandbox.Backend) (*backend, error) {
	x, ok := e.backends[b]
	if !ok {
		return nil, sandbox.Errorf(sandbox.Invalid, "backend %s is not configured here: name its account, with --%s-account or the provider's %s block", b, b, b)
	}
	return x, nil
}

// inReach returns the instances that are connected.
func (e *Engine) inReach() []string {
	var instances []string
	for _, b := range e.backends {
		if instance := b.instance(); instance != "" {
			instances = append(instances, instance)
		}
	}
	return instances
}
