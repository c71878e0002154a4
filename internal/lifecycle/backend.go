package lifecycle

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/driver"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/ledger"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/ledger/micro"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// Backend is an executor and its connection. Reading the connection never waits. Only Reach asks the backend, with one
// question at a time; its callers wait until their contexts end.
type Backend struct {
	driver.Executor
	core    *Core    // owns the questions
	witness *witness // nil if an instance's id alone identifies it
	link    atomic.Pointer[link]

	mu     sync.Mutex // guards changes of link, and the fields below; not held during a question
	asking *question  // nil without a question under way
}

// link is a connection to a backend. It is immutable.
type link struct {
	instance string
	// watchedSince is the time since which a watch reports every change, 0 without a watch.
	watchedSince micro.Time
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

// Reach returns the connected instance. Without a connection it asks the backend. Errors: Unavailable.
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

// ask returns the question under way, or begins one. With a connection, the question is already answered.
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

// answer asks the backend. If forget was called meanwhile, the answer makes no connection.
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

// forget drops a broken connection. The next Reach asks again.
func (b *Backend) forget() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.asking = nil
	b.link.Store(nil)
}

// HasWitness reports whether a witness identifies the instances of the backend.
func (b *Backend) HasWitness() bool { return b.witness != nil }

// watched records the time since which the watch reports every change.
func (b *Backend) watched(since micro.Time) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if l := b.link.Load(); l != nil {
		b.link.Store(&link{instance: l.instance, watchedSince: since})
	}
}

// lastThere returns the last known moment at which a missing sandbox existed. That is now if it was seen after a watch
// began to report every change, or else the time when it was last seen.
func (b *Backend) lastThere(s *ledger.Sandbox, now micro.Time) micro.Time {
	seen := max(s.ObservedAt, s.ReadyAt)
	if s.Origin.LedgerID != "" { // the watch reports only objects with our own label
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
		return nil, sandbox.Errorf(sandbox.Invalid, "backend %s", NotConfigured(b))
	}
	return x, nil
}

// NotConfigured says that a backend is not configured, and what to do.
func NotConfigured(b sandbox.Backend) string {
	return fmt.Sprintf("%s is not configured here: name its account, with --%s-account or the provider's %s block",
		b, b, b)
}

// On returns the backend of a sandbox, and the sandbox's handle there. Errors: Invalid.
func (c *Core) On(s *ledger.Sandbox) (driver.Executor, driver.Handle, error) {
	x, err := c.BackendFor(s.Backend)
	if err != nil {
		return nil, driver.Handle{}, err
	}
	return x.Executor, c.handle(s), nil
}

// handle names a sandbox on its backend.
func (c *Core) handle(s *ledger.Sandbox) driver.Handle {
	return driver.Handle{
		LedgerID:      cmp.Or(s.Origin.LedgerID, c.store.ID()),
		EnvironmentID: s.EnvironmentID,
		SandboxID:     s.ID,
		Instance:      s.Instance,
	}
}

// EnvironmentRef names an environment on its backend.
func (c *Core) EnvironmentRef(id, instance string) driver.EnvironmentRef {
	return driver.EnvironmentRef{LedgerID: c.store.ID(), EnvironmentID: id, Instance: instance}
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

// AwayError says that the instance of a sandbox or an environment is not connected.
type AwayError struct {
	Backend  sandbox.Backend
	Instance string
}

func (a *AwayError) Error() string {
	return fmt.Sprintf("%s instance %s is not known to answer here", a.Backend, a.Instance)
}

// Answers returns an AwayError unless the instance is connected. It never waits, so transactions may call it.
func (c *Core) Answers(b sandbox.Backend, instance string) error {
	x, err := c.BackendFor(b)
	if err != nil {
		return err
	}
	if x.Connected() == instance {
		return nil
	}
	return &AwayError{b, instance}
}

// AnswersNow asks a backend whether it answers.
func AnswersNow(ctx context.Context, x driver.Executor) bool {
	ctx, cancel := context.WithTimeout(ctx, answerTimeout)
	defer cancel()
	_, err := x.Instance(ctx)
	return err == nil
}

// Reaching runs fn. If fn returns an AwayError, it connects to that instance and runs fn again. Nothing is claimed for
// an instance that this process cannot reach, because another replica may reach it. Errors: those of fn, and
// Unavailable.
func (c *Core) Reaching(ctx context.Context, fn func() error) error {
	err := fn()
	var away *AwayError
	if !errors.As(err, &away) {
		return err
	}
	if err := c.MustReach(ctx, away.Backend, away.Instance); err != nil {
		return err
	}
	if err = fn(); errors.As(err, &away) {
		return sandbox.Errorf(sandbox.Unavailable, "%w: the connection broke; try again", err)
	}
	return err
}

// MustReach connects to an instance. Errors: Unavailable, with ReasonOtherInstance if another instance answers.
func (c *Core) MustReach(ctx context.Context, b sandbox.Backend, instance string) error {
	x, err := c.BackendFor(b)
	if err != nil {
		return err
	}
	found, err := x.Reach(ctx)
	if err != nil || found == instance {
		return AsError(err)
	}
	return sandbox.Errorf(sandbox.Unavailable, "%s instance %s answers here, but the request is for %s: nothing was "+
		"done; ask a reconciler that reaches that one", b, found, instance).WithReason(sandbox.ReasonOtherInstance)
}
