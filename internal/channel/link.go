package channel

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"time"

	"github.com/hashicorp/yamux"
)

// link is the client's side of a session, with the goroutine that keeps it on a carrier.
type link struct {
	*session
	client *Client
	mux    *yamux.Session
	kicked chan struct{} // signals that the client's state has changed
	done   chan struct{} // closed when run ends

	dials uint64 // only for run
	known bool   // only for run: the guest has answered once

	stateMu sync.Mutex
	up      chan struct{} // closed while there is a carrier
	last    error         // why the last dial failed
	fatal   error         // an error that no new session would fix
	life    string        // from the guest
}

// begin starts a session. The caller must hold the client's mutex.
func (c *Client) begin() (*link, error) {
	l := &link{
		session: newSession(randomID(), maxUnacknowledged), client: c,
		kicked: make(chan struct{}, 1), done: make(chan struct{}), up: make(chan struct{}),
	}
	g := &guard{session: l.session, closes: func(uint32) {}, opens: func(id uint32) error {
		return violationf("the guest opened stream %d", id)
	}}
	cfg := multiplex()
	cfg.StreamCloseTimeout = streamCloseLimit
	mux, err := yamux.Client(g, cfg)
	if err != nil {
		return nil, fmt.Errorf("begin a session: %w", err)
	}
	l.mux = mux
	return l, nil
}

// connected returns a channel that is closed while there is a carrier.
func (l *link) connected() <-chan struct{} {
	l.stateMu.Lock()
	defer l.stateMu.Unlock()
	return l.up
}

// failure returns why the last dial failed, or nil.
func (l *link) failure() error {
	l.stateMu.Lock()
	defer l.stateMu.Unlock()
	return l.last
}

// over reports whether the session has ended.
func (l *link) over() bool { return l.reason() != nil || l.mux.IsClosed() }

// final returns the error that a new session would also get, or nil.
func (l *link) final() error {
	l.stateMu.Lock()
	defer l.stateMu.Unlock()
	return l.fatal
}

// run keeps the session on a carrier while operations need it.
func (l *link) run() {
	ctx, cancel := context.WithCancel(l.client.ctx)
	var wg sync.WaitGroup
	wg.Go(func() { // the multiplexer ends with its session
		select {
		case <-l.mux.CloseChan():
		case <-ctx.Done():
		}
		cancel()
	})
	for ctx.Err() == nil && !l.over() {
		if l.await(ctx) {
			l.carry(ctx)
		}
	}
	cancel()
	l.mux.Close() //nolint:errcheck // it always returns nil
	wg.Wait()
	close(l.done)
}

// await waits until a carrier is wanted and its time has come, and returns false if run should check again.
func (l *link) await(ctx context.Context) bool {
	if !l.client.active() {
		select {
		case <-l.kicked:
		case <-ctx.Done():
		}
		return false
	}
	delay := time.NewTimer(l.client.delay())
	defer delay.Stop()
	for {
		select {
		case <-delay.C:
			return l.client.active()
		case <-l.kicked: // another operation changes nothing
		case <-ctx.Done():
			return false
		}
	}
}

// carry dials a carrier, and returns when it is gone.
func (l *link) carry(ctx context.Context) {
	c, err := l.dial(ctx)
	if err != nil {
		l.failed(err)
		return
	}
	began := time.Now()
	l.stateMu.Lock()
	close(l.up)
	l.last = nil
	l.stateMu.Unlock()
	l.watch(ctx, c)
	l.stateMu.Lock()
	l.up = make(chan struct{})
	l.stateMu.Unlock()
	l.client.lasted(time.Since(began))
	l.client.cfg.Log.Debug("a carrier is gone", "session", l.id, "error", c.why)
}

// failed records why there is no carrier, and ends the session if no other carrier can help.
func (l *link) failed(err error) {
	_, broken := errors.AsType[fatal](err)
	final := errors.Is(err, ErrGone) || errors.Is(err, errVersion)
	l.stateMu.Lock()
	l.last = err
	if final {
		l.fatal = err
	}
	l.stateMu.Unlock()
	if !final {
		l.client.lasted(0)
	}
	l.client.cfg.Log.Debug("no carrier", "session", l.id, "error", err)
	if broken || final {
		l.end(err)
	}
}

// errVersion means that client and guest have no protocol version in common.
var errVersion = errors.New("no version of the protocol in common")

// dial opens a carrier and attaches it.
func (l *link) dial(ctx context.Context) (*carrier, error) {
	ctx, cancel := context.WithTimeout(ctx, l.client.cfg.Silence)
	defer cancel()
	conn, err := l.client.cfg.Dial(ctx)
	if err != nil {
		return nil, err
	}
	l.dials++
	c, err := l.greeted(ctx, conn)
	if err != nil {
		conn.Close() //nolint:errcheck // the carrier is unusable
		return nil, errors.Join(err, ctx.Err())
	}
	return c, nil
}

func (l *link) greeted(ctx context.Context, conn net.Conn) (*carrier, error) {
	stop := context.AfterFunc(ctx, func() { conn.Close() }) // this ends a current Read or Write
	defer stop()
	received, err := l.fence(l.dials)
	if err != nil {
		return nil, err
	}
	answer, err := l.client.greet(conn, clientHello{Session: l.id, Attempt: l.dials, Resume: l.known, Received: received})
	if err != nil {
		return nil, err
	}
	if !answer.Known {
		return nil, fatal{"the guest no longer knows the session"}
	}
	l.known = true
	l.stateMu.Lock()
	l.life = cut(answer.Life, maxID)
	l.stateMu.Unlock()
	if !stop() {
		return nil, ctx.Err()
	}
	c := newCarrier(conn)
	return c, l.attach(c, l.dials, answer.Received)
}

// greet exchanges hellos.
func (c *Client) greet(conn net.Conn, hello clientHello) (guestHello, error) {
	hello.Min, hello.Max, hello.Client = c.cfg.versions.Min, c.cfg.versions.Max, cut(c.cfg.Name, maxID)
	if err := writeHello(conn, hello); err != nil {
		return guestHello{}, err
	}
	var answer guestHello
	if err := readHello(conn, &answer); err != nil {
		return guestHello{}, err
	}
	theirs := versions{answer.Min, answer.Max}
	switch common := c.cfg.versions.common(theirs); {
	case common == 0:
		older := "this program"
		if theirs.Max < c.cfg.versions.Min {
			older = "the sandbox"
		}
		return guestHello{}, fmt.Errorf("%w: this program speaks %s, the sandbox (release %q) speaks %s; "+
			"%s is too old: replace it with a newer one", errVersion, c.cfg.versions, cut(answer.Release, maxID), theirs, older)
	case answer.Version != common:
		return guestHello{}, violationf("it chose version %d, but %d is the highest in common", answer.Version, common)
	case answer.Refused != "":
		return guestHello{}, fmt.Errorf("the guest refused the carrier: %s", cut(answer.Refused, maxBye))
	}
	return answer, nil
}

// watch waits until a carrier is gone. It drops the carrier if the guest is silent for too long while
// operations are pending.
func (l *link) watch(ctx context.Context, c *carrier) {
	cfg := l.client.cfg
	var since time.Time // an idle guest may be silent, so silence counts from here
	tick, ticking := time.NewTimer(cfg.Heartbeat), false
	defer tick.Stop()
	for {
		var beat <-chan time.Time
		if active := l.client.active(); active && !ticking {
			since, ticking = time.Now(), true
			tick.Reset(cfg.Heartbeat)
		} else if !active {
			ticking = false
		}
		if ticking {
			beat = tick.C
		}
		select {
		case <-c.gone:
			return
		case <-ctx.Done():
			l.detach(c, ctx.Err())
			return
		case <-l.kicked:
			continue
		case <-beat:
		}
		if ticking = l.client.active(); !ticking {
			continue
		}
		left := time.Until(later(since, l.lastHeard()).Add(cfg.Silence))
		if left <= 0 {
			l.detach(c, fmt.Errorf("the guest gave no sign of life for %s", cfg.Silence))
			return
		}
		l.ping(c)
		tick.Reset(min(cfg.Heartbeat, left))
	}
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

// delay returns how long the next dial waits.
func (c *Client) delay() time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.cfg.Redial.delay(c.failures)
}

// lasted counts carriers that did not last.
func (c *Client) lasted(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.failures++
	if d > c.cfg.Redial.Max {
		c.failures = 0
	}
}
