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

// ClientConfig configures a Client. Zero values take the documented defaults; Dial is required.
type ClientConfig struct {
	Dial Dial
	// Name names this program and its release in logs of the guest.
	Name string
	// Heartbeat is how often the client asks for a sign of life while operations are pending, 5 s by default. After Silence,
	// 15 s by default, it takes the carrier for dead and dials another; it is also the limit of each dial.
	Heartbeat, Silence time.Duration
	// Redial delays the dials after the first.
	Redial Backoff
	Log    *slog.Logger

	versions versions
}

// Backoff is the delay between dials: it doubles from Min, 50 ms by default, to Max, 5 s by default, and varies by half
// at random. It begins anew after a carrier that lasted longer than Max.
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

// Client is the reconciler's side of the protocol, for one sandbox. It takes the guest for hostile.
type Client struct {
	cfg    ClientConfig
	ctx    context.Context
	cancel context.CancelFunc
	slots  chan struct{}
	wg     sync.WaitGroup // goroutines, and calls of Call

	mu        sync.Mutex
	closed    bool
	suspended bool
	pending   int
	failures  int   // dials in a row that gave no lasting carrier
	link      *link // the present session, nil before the first operation
}

// NewClient returns a Client. It dials at the first Call.
func NewClient(cfg ClientConfig) *Client {
	ctx, cancel := context.WithCancel(context.Background())
	return &Client{cfg: cfg.withDefaults(), ctx: ctx, cancel: cancel, slots: make(chan struct{}, maxCalls)}
}

// Call makes the guest carry out an operation. It returns when the result has come and all output before it is written.
//
// When ctx ends first, Call gives the operation up and returns an error that wraps ctx.Err(), after a Write to s.Stdout or
// s.Stderr under way. The guest then ends the operation's context; a command goes on until a request with OpEnd. An error
// that wraps ErrLost leaves open whether the operation was carried out. OpShutdown takes a carrier of its own, waits
// for no other operation, and returns when the guest has taken it and the carrier broke or the result came.
func (c *Client) Call(ctx context.Context, r Request, s Streams) (wire.Result, error) {
	if r.Op == OpShutdown {
		return c.shutdown(ctx, r)
	}
	request, err := json.Marshal(r)
	if err != nil {
		return wire.Result{}, fmt.Errorf("encode the request for %s: %w", r.Op, err)
	}
	if len(request) > maxRequest {
		return wire.Result{}, fmt.Errorf("the request for %s has %d bytes, at most %d are allowed", r.Op, len(request), maxRequest)
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

// kick makes the link look at what has changed. The mutex is held.
func (c *Client) kick() {
	if c.link == nil {
		return
	}
	select {
	case c.link.kicked <- struct{}{}:
	default:
	}
}

// ready returns a session that has a carrier. It waits for one, and begins a new session when the present one ends
// meanwhile: nothing of the caller's operation is lost with that.
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

// present returns the present session, or begins one.
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

// Suspend says that the sandbox is paused: until Resume, silence of the guest means nothing, and no carrier is dialed.
func (c *Client) Suspend() { c.suspend(true) }

// Resume ends Suspend. The guest gets the whole of Silence to give a sign of life.
func (c *Client) Resume() { c.suspend(false) }

func (c *Client) suspend(suspended bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.suspended != suspended {
		c.suspended = suspended
		c.kick()
	}
}

// Idle tells whether no operation is pending.
func (c *Client) Idle() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.pending == 0
}

// active tells whether the client wants a carrier that works.
func (c *Client) active() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.pending > 0 && !c.suspended && !c.closed
}

// Close gives pending operations up, ends the session, and waits for the client's goroutines and for each Call to return.
func (c *Client) Close() error {
	c.mu.Lock()
	c.closed = true
	l := c.link
	c.mu.Unlock()
	if l != nil {
		l.leave("the client ends")
	}
	c.cancel()
	c.wg.Wait()
	return nil
}

// shutdown ends the sandbox over a carrier of its own: bulk data of the session cannot delay it, nor a session that is full.
func (c *Client) shutdown(ctx context.Context, r Request) (wire.Result, error) {
	if err := c.enter(); err != nil {
		return wire.Result{}, err
	}
	defer c.leave()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(c.ctx, cancel)()
	conn, err := c.cfg.Dial(ctx)
	if err != nil {
		return wire.Result{}, fmt.Errorf("dial the sandbox to end it: %w", err)
	}
	defer conn.Close()                                      //nolint:errcheck // whatever it says, the carrier is not used again
	defer context.AfterFunc(ctx, func() { conn.Close() })() // which ends a Read or Write under way
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
	c.cfg.Log.Debug("the carrier of a shutdown broke", "error", err) // which is its answer
	return wire.Result{}, nil
}
