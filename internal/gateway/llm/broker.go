// Package llm is the gateway's LLM broker. A program in a sandbox sends plain HTTP to
// http://127.0.0.1:3128/llm/<route>/v1/…, without a key. For each call, the broker
//
//	checks    the route, the model, and that tokens alone set the price (request.go)
//	admits    it within the limits, and reserves the most that it can use (book.go)
//	records   its beginning in the journal, before anything is sent (journal.go)
//	sends     it with the key and headers that identify the caller (header.go, upstream.go)
//	meters    the upstream's own counts in the answer, which passes as it arrives (scan.go, usage.go)
//	records   its end (serve.go)
//
// The journal is the bill. If the upstream does not report a call's usage, the call costs what was reserved for it.
package llm

import (
	"cmp"
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"reflect"
	"slices"
	"sync"
	"time"

	"golang.org/x/sync/semaphore"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/gateway/egress"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/gateway/segments"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// Entry is a line of the journal with its position.
type Entry struct {
	segments.Position
	Call sandbox.LLMCall `json:"call"`
}

// Status is the state of a broker.
type Status struct {
	// Hash is the hash of the current Config, "" if there is none.
	Hash    string `json:"hash"`
	Running int    `json:"running"` // running calls
	// Unread is the size, in bytes, of the journal's unconfirmed lines.
	Unread int64 `json:"unread"`
}

// Options are the parts of a Broker.
type Options struct {
	// Dir is the directory of the journal, which Open creates if needed.
	Dir    string
	Dialer *egress.Dialer
	// NewID returns new ids for calls. They must be unique across restarts of the gateway.
	NewID func() string
	// Now is the clock; nil means time.Now.
	Now func() time.Time
	// Roots are the authorities of upstreams; nil means the machine's.
	Roots *x509.CertPool
	// Idle limits the time without a byte from an upstream, and without progress of a client. The default is 15 minutes: a
	// model may think for a long time.
	Idle time.Duration
	// SegmentBytes is the size of the journal's files, 4 MiB by default. MaxUnread is the size of unread lines, in bytes,
	// above which calls are refused, 64 MiB by default.
	SegmentBytes, MaxUnread int64
}

// Limits of memory, in bytes. A body takes memory while it arrives, which may be slowly, and until the upstream
// answers.
const (
	maxBody   = 16 << 20
	maxBodies = 64 << 20 // for the bodies of all sandboxes
	// maxShare is for the bodies of one sandbox. It is more than maxBody, because a body of unknown size takes that much
	// while it arrives.
	maxShare = 24 << 20
	// bodyCopies is the number of a body's copies in memory during its check, which waits for nothing. maxChecks limits
	// all copies but the first.
	bodyCopies = 3
	maxChecks  = (bodyCopies - 1) * maxBody
)

// maxCalls limits the concurrent calls of a sandbox.
const maxCalls = 128

// Time limits of requests.
const (
	defaultIdle = 15 * time.Minute
	// bodyTime plus bodyTimeMiB for each MiB limits how long a body takes to arrive. It comes from the same machine and
	// takes memory from other calls.
	bodyTime    = 10 * time.Second
	bodyTimeMiB = time.Second
	// bodyWait is how long a request waits for memory.
	bodyWait = 30 * time.Second
)

// Broker serves the LLM calls of an environment's sandboxes. It refuses all calls until it has routes.
type Broker struct {
	options Options
	book    *book
	lines   *dialing
	bodies  *semaphore.Weighted // maxBodies
	checks  *semaphore.Weighted // maxChecks
	ctx     context.Context     // ends with the broker
	cancel  context.CancelFunc

	setting sync.Mutex // serializes changes of the routes
	mu      sync.Mutex // guards what follows
	config  *Config    // nil means none
	hash    string
	routes  map[string]*upstream
	private []string
	shares  map[string]*share // by sandbox, while it has calls
	closed  bool
	calls   sync.WaitGroup
}

// share is what a sandbox uses of the gateway.
type share struct {
	calls  int                 // guarded by Broker.mu
	bodies *semaphore.Weighted // maxShare
}

// Open returns a broker without routes. It records calls that an earlier gateway left running as interrupted.
func Open(o Options) (*Broker, error) {
	if o.Now == nil {
		o.Now = time.Now
	}
	o.Idle = cmp.Or(o.Idle, defaultIdle)
	o.SegmentBytes = cmp.Or(o.SegmentBytes, defaultSegment)
	o.MaxUnread = cmp.Or(o.MaxUnread, defaultUnread)
	book, err := openBook(o)
	if err != nil {
		return nil, err
	}
	b := &Broker{
		options: o, book: book, lines: newDialing(), bodies: semaphore.NewWeighted(maxBodies),
		checks: semaphore.NewWeighted(maxChecks), routes: map[string]*upstream{}, shares: map[string]*share{},
	}
	b.ctx, b.cancel = context.WithCancel(context.Background())
	return b, nil
}

// Set sets the routes, the budget and the recorded sums. Running calls continue, even those of changed routes. Errors
// never contain a key.
func (b *Broker) Set(c Config) error {
	if err := c.validate(); err != nil {
		return err
	}
	hash, err := c.Hash()
	if err != nil {
		return err
	}
	b.setting.Lock()
	defer b.setting.Unlock()
	b.mu.Lock()
	old, private, closed := maps.Clone(b.routes), b.private, b.closed
	b.mu.Unlock()
	if closed {
		return errClosed
	}
	routes := make(map[string]*upstream, len(c.Routes))
	for name, r := range c.Routes {
		if u := old[name]; u != nil && reflect.DeepEqual(u.route, r) {
			routes[name] = u
			continue
		}
		u, err := newUpstream(r, private, b.options.Dialer, b.options.Roots, b.lines)
		if err != nil {
			return fmt.Errorf("set LLM route %s: %w", name, err)
		}
		routes[name] = u
	}
	b.book.configure(c)
	b.mu.Lock()
	b.config, b.hash, b.routes = &c, hash, routes
	for name, u := range old {
		u.retired = routes[name] != u
	}
	b.mu.Unlock()
	for name, u := range old {
		if routes[name] != u {
			u.transport.CloseIdleConnections()
		}
	}
	return nil
}

// SetPrivate sets the private ranges that upstreams may be in, as in sandbox.Egress. It also closes idle connections,
// because the path to the upstreams may have changed.
func (b *Broker) SetPrivate(cidrs []string) error {
	b.setting.Lock()
	defer b.setting.Unlock()
	b.mu.Lock()
	routes := slices.Collect(maps.Values(b.routes))
	b.private = slices.Clone(cidrs)
	b.mu.Unlock()
	for _, u := range routes {
		if err := u.allow(cidrs); err != nil {
			return err
		}
		u.transport.CloseIdleConnections()
	}
	return nil
}

// Calls returns the oldest lines of the journal after a position, in order. It returns none if there are none yet.
// Lines up to that position count as recorded elsewhere, so it may remove them.
func (b *Broker) Calls(after segments.Position) ([]Entry, error) { return b.book.calls(after) }

// Status returns the broker's current state.
func (b *Broker) Status() Status {
	running, unread := b.book.status()
	b.mu.Lock()
	defer b.mu.Unlock()
	return Status{Hash: b.hash, Running: running, Unread: unread}
}

// Forget drops the sums of a removed sandbox. Its calls must have ended.
func (b *Broker) Forget(id string) error { return b.book.forget(id) }

// Close interrupts all calls, and returns once they are recorded.
func (b *Broker) Close() error {
	b.mu.Lock()
	b.closed = true
	b.mu.Unlock()
	b.cancel()
	b.calls.Wait()
	b.lines.close()
	b.mu.Lock()
	routes := slices.Collect(maps.Values(b.routes))
	b.mu.Unlock()
	for _, u := range routes {
		u.transport.CloseIdleConnections()
	}
	return b.book.close()
}

// find returns a route's upstream with the environment's config. The caller must release the upstream.
func (b *Broker) find(name string) (*upstream, *Config, *refusal) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closed {
		return nil, nil, unavailable("the gateway is shutting down: try again later")
	}
	if b.config == nil {
		return nil, nil, unavailable("the gateway has no LLM routes yet: the service that manages this environment sets " +
			"them when it runs")
	}
	u := b.routes[name]
	if u == nil {
		return nil, nil, unknownRoute(name, slices.Sorted(maps.Keys(b.routes)))
	}
	u.running++
	b.calls.Add(1)
	return u, b.config, nil
}

func (b *Broker) release(u *upstream) {
	b.mu.Lock()
	u.running--
	last := u.running == 0 && u.retired
	b.mu.Unlock()
	if last {
		u.transport.CloseIdleConnections()
	}
	b.calls.Done()
}

// enter counts a call of a sandbox, and returns the sandbox's share. Each enter without a refusal needs a leave.
func (b *Broker) enter(sandbox string) (*share, *refusal) {
	b.mu.Lock()
	defer b.mu.Unlock()
	s := b.shares[sandbox]
	if s == nil {
		s = &share{bodies: semaphore.NewWeighted(maxShare)}
		b.shares[sandbox] = s
	}
	if s.calls == maxCalls {
		return nil, refuse(http.StatusServiceUnavailable, codeBusy,
			"the sandbox has too many calls under way: try again").again()
	}
	s.calls++
	return s, nil
}

func (b *Broker) leave(sandbox string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	s := b.shares[sandbox]
	if s.calls--; s.calls == 0 {
		delete(b.shares, sandbox)
	}
}

// errIdle ends a call whose upstream sends nothing.
var errIdle = errors.New("the upstream sent nothing for too long")
