package leasing

import (
	"context"
	"sync"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/ledger"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/sandbox"
)

// backend is an executor and the instance that it was last seen to reach.
type backend struct {
	sandbox.Executor
	unmetered sync.Once  // says that usage is not compared
	mu        sync.Mutex // guards what follows
	instance  string
	// watchedSince is when the watch was established that reports every change since; 0 without one.
	watchedSince ledger.Time
}

// reach returns the id of the instance that the executor reaches, asking once.
func (b *backend) reach(ctx context.Context) (string, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.instance != "" {
		return b.instance, nil
	}
	ctx, cancel := context.WithTimeout(ctx, instanceTimeout)
	defer cancel()
	id, err := b.Instance(ctx)
	if err != nil {
		return "", err
	}
	b.instance = id
	return id, nil
}

// forget makes the next reach ask again, after a connection broke.
func (b *backend) forget() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.instance, b.watchedSince = "", 0
}

// watched notes that from now on every change is reported.
func (b *backend) watched(since ledger.Time) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.watchedSince = since
}

// lastThere returns until when a sandbox that is found missing now was there, as far as is known:
// until now if it had been seen since a watch reports every change, or else when it was last seen.
func (b *backend) lastThere(s *ledger.Sandbox, now ledger.Time) ledger.Time {
	seen := max(s.ObservedAt, s.ReadyAt)
	b.mu.Lock()
	defer b.mu.Unlock()
	if s.LedgerID != "" { // the watch reports what has our own label
		return seen
	}
	if b.watchedSince != 0 && b.watchedSince <= seen {
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
