package channel

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/guest/wire"
)

// ClientConfig configures a Client. Zero values take the documented defaults. Dial is required.
type ClientConfig struct {
	Dial Dial
	// Name names this program and its release in the guest's logs.
	Name string
	// Heartbeat is how often the client asks for a sign of life while operations are pending, 5 s by default.
	// After Silence, 15 s by default, it considers the carrier dead and dials another. Silence is also the
	// limit of each dial.
	Heartbeat, Silence time.Duration
	// Redial is the delay of dials after the first.
	Redial Backoff
	Log    *slog.Logger

	versions versions
}

// Backoff is the delay between dials: it doubles from Min, 50 ms by default, to Max, 5 s by default, and half
// of it is random. A carrier that lasted longer than Max resets it.
type Backoff struct{ Min, Max time.Duration }

func (b Backoff) delay(failures int) time.Duration {
	if failures == 0 {
		return 0
	}
	d := b.Max
	if failures < 30 {
		d = min(b.Min<<(failures-1), b.Max)
	}
	return d/2 + rand.N(d/2+1)
}

func (cfg ClientConfig) withDefaults() ClientConfig {
	cfg.Heartbeat = cmp.Or(cfg.Heartbeat, defaultHeartbeat)
	cfg.Silence = cmp.Or(cfg.Silence, defaultSilence)
	cfg.Redial.Min = cmp.Or(cfg.Redial.Min, defaultRedialMin)
	cfg.Redial.Max = max(cmp.Or(cfg.Redial.Max, defaultRedialMax), cfg.Redial.Min)
	cfg.versions = cmp.Or(cfg.versions, spoken)
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	return cfg
}

// Client is the reconciler's side of the protocol for one sandbox. It assumes that the guest is hostile.
type Client struct {
	cfg    ClientConfig
	ctx    context.Context
	cancel context.CancelFunc
	slots  chan struct{}
	wg     sync.WaitGroup // goroutines and calls of Call

	mu        sync.Mutex
	closed    bool
	suspended bool
	pending   int
	failures  int   // consecutive dials without a lasting carrier
	link      *link // the current session, nil before the first operation
}

// NewClient returns a Client. It dials at the first Call.
func NewClient(cfg ClientConfig) *Client {
	ctx, cancel := context.WithCancel(context.Background())
	return &Client{cfg: cfg.withDefaults(), ctx: ctx, cancel: cancel, slots: make(chan struct{}, maxCalls)}
}

// Call asks the guest to carry out an operation. It returns when the result has arrived and all earlier
// output is written.
//
// If ctx ends first, Call gives the operation up after a current Write to s.Stdout or s.Stderr, and returns
// an error that wraps ctx.Err(). The guest then ends the operation's context; a command continues until a
// request with OpEnd. After an error that wraps ErrLost, it is unknown whether the operation was carried out.
// OpShutdown uses a separate carrier, waits for no other operation, and returns when the guest has accepted
// it and the carrier has broken or the result has arrived. If no carrier can be dialled, it uses the session's.
func (c *Client) Call(ctx context.Context, r Request, s Streams) (wire.Result, error) {
	if r.Op == OpShutdown {
		return c.shutdown(ctx, r)
	}
	request, err := json.Marshal(r)
	if err != nil {
		return wire.Result{}, fmt.Errorf("encode the request for %s: %w", r.Op, err)
	}
	if len(request) > maxRequest {
		return wire.Result{}, fmt.Errorf("the request for %s has %d bytes, at most %d are allowed",
			r.Op, len(request), maxRequest)
	}
	if err := c.enter(); err != nil {
		return wire.Result{}, err
	}
	defer c.leave()
	select {
	case c.slots <- struct{}{}:
	case <-ctx.Done():
		return wire.Result{}, ctx.Err()
	case <-c.ctx.Done():
		return wire.Result{}, ErrClosed
	}
	l, err := c.ready(ctx)
	if err != nil {
		<-c.slots
		return wire.Result{}, err
	}
	result, err := l.call(ctx, request, s)
	if err != nil && c.ctx.Err() != nil {
		err = errors.Join(ErrClosed, err)
	}
	return result, err
}

// enter counts an operation as pending.
func (c *Client) enter() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return ErrClosed
	}
	c.wg.Add(1)
	c.pending++
	if c.pending == 1 {
		c.kick()
	}
	return nil
}

func (c *Client) leave() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.pending--
	c.wg.Done()
}

// kick makes the link check what has changed. The caller must hold the mutex.
func (c *Client) kick() {
	if c.link == nil {
		return
	}
	select {
	case c.link.kicked <- struct{}{}:
	default:
	}
}

// ready returns a session with a carrier. It waits for one, and begins a new session if the current one ends
// meanwhile: the caller's operation has not started, so nothing is lost.
func (c *Client) ready(ctx context.Context) (*link, error) {
	for {
		l, err := c.present()
		if err != nil {
			return nil, err
		}
		select {
		case <-l.done:
			if err := l.final(); err != nil {
				return nil, err
			}
		case <-l.connected():
			return l, nil
		case <-ctx.Done():
			if last := l.failure(); last != nil {
				return nil, fmt.Errorf("wait for a connection to the sandbox: %w; the last attempt: %w", ctx.Err(), last)
			}
			return nil, fmt.Errorf("wait for a connection to the sandbox: %w", ctx.Err())
		}
	}
}

// present returns the current session, or begins one.
func (c *Client) present() (*link, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return nil, ErrClosed
	}
	if c.link != nil && !c.link.over() {
		return c.link, nil
	}
	l, err := c.begin()
	if err != nil {
		return nil, err
	}
	c.link = l
	c.wg.Go(l.run)
	return l, nil
}

// Suspend says that the sandbox is paused: until Resume, the guest's silence means nothing, and the client
// does not dial.
func (c *Client) Suspend() { c.suspend(true) }

// Resume ends Suspend. The guest then has the whole Silence for a sign of life.
func (c *Client) Resume() { c.suspend(false) }

func (c *Client) suspend(suspended bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.suspended != suspended {
		c.suspended = suspended
		c.kick()
	}
}

// Idle reports whether no operation is pending.
func (c *Client) Idle() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.pending == 0
}

// active reports whether the client needs a working carrier.
func (c *Client) active() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.pending > 0 && !c.suspended && !c.closed
}

// Close gives up pending operations, ends the session, and waits for the client's goroutines and for all
// calls of Call.
func (c *Client) Close() error {
	c.mu.Lock()
	c.closed = true
	l := c.link
	c.mu.Unlock()
	if l != nil {
		l.leave("the client closes")
	}
	c.cancel()
	c.wg.Wait()
	return nil
}

// apartPatience is how long a shutdown waits for a separate carrier before it also tries the session's.
const apartPatience = 300 * time.Millisecond

// shutdown ends the sandbox over a separate carrier: neither bulk data nor a full session can delay it. If none can be
// dialled soon, the session's carrier may still work.
func (c *Client) shutdown(ctx context.Context, r Request) (wire.Result, error) {
	if err := c.enter(); err != nil {
		return wire.Result{}, err
	}
	defer c.leave()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(c.ctx, cancel)()
	type answer struct {
		result wire.Result
		err    error
	}
	answers := make(chan answer, 2)
	ask := func(way func(context.Context, Request) (wire.Result, error)) {
		c.wg.Go(func() {
			result, err := way(ctx, r)
			answers <- answer{result, err}
		})
	}
	ask(c.shutdownApart)
	var failed error
	patience, asked := time.After(apartPatience), 1
	for answered := 0; answered < asked; {
		select {
		case a := <-answers:
			if a.err == nil {
				return a.result, nil
			}
			answered++
			failed = errors.Join(failed, a.err)
		case <-patience:
		}
		if asked == 1 {
			asked++
			ask(c.shutdownInSession)
		}
	}
	return wire.Result{}, failed
}

// shutdownInSession is shutdown over the carrier of the current session, if there is one.
func (c *Client) shutdownInSession(ctx context.Context, r Request) (wire.Result, error) {
	c.mu.Lock()
	l := c.link
	c.mu.Unlock()
	if l == nil || l.attachedTo() == nil {
		return wire.Result{}, errors.New("end the sandbox: the session has no carrier")
	}
	request, err := json.Marshal(r)
	if err != nil {
		return wire.Result{}, fmt.Errorf("encode the request for %s: %w", r.Op, err)
	}
	select {
	case c.slots <- struct{}{}:
		result, err := l.call(ctx, request, Streams{})
		if err == nil && result.Problem != "" {
			err = fmt.Errorf("end the sandbox: the guest refuses: %s", result.Message)
		}
		return result, err
	case <-ctx.Done():
		return wire.Result{}, ctx.Err()
	}
}

// shutdownApart is shutdown over a separate carrier.
func (c *Client) shutdownApart(ctx context.Context, r Request) (wire.Result, error) {
	conn, err := c.cfg.Dial(ctx)
	if err != nil {
		return wire.Result{}, fmt.Errorf("dial the sandbox to end it: %w", err)
	}
	defer conn.Close()                                      //nolint:errcheck // the carrier is not used again
	defer context.AfterFunc(ctx, func() { conn.Close() })() // this ends a current Read or Write
	if _, err := c.greet(conn, clientHello{Shutdown: &r}); err != nil {
		return wire.Result{}, errors.Join(ctx.Err(), err)
	}
	var answer wire.Demux
	_, err = io.Copy(&answer, conn)
	if result, ok := answer.Result(); ok {
		return result, nil
	}
	if ctx.Err() != nil {
		return wire.Result{}, ctx.Err()
	}
	c.cfg.Log.Debug("the carrier of a shutdown broke", "error", err) // this is the expected answer
	return wire.Result{}, nil
}
