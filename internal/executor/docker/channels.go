package docker

import (
	"context"
	"net"
	"sync"
	"time"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/channel"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/driver"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/executor/docker/objects"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

const (
	// channelIdle is how long an unused session with a sandbox is kept.
	channelIdle = 5 * time.Minute
	// maxIdleChannels limits the idle sessions. Beyond it, the session that has been idle longest is closed.
	maxIdleChannels = 512
	// maxRedial is the longest pause between two attempts to reach a sandbox. A sandbox must be reachable
	// within 5 s of a fault.
	maxRedial = 2 * time.Second
)

// channels are the sessions with sandboxes.
type channels struct {
	open func(h driver.Handle) *channel.Client

	mu      sync.Mutex // guards what follows
	of      map[driver.Handle]*session
	idle    int // number of idle sessions
	closed  bool
	closing sync.WaitGroup // sessions that are being closed
}

// session is one session and its number of users.
type session struct {
	client *channel.Client
	users  int
	since  time.Time   // when it became idle
	end    *time.Timer // closes the session after channelIdle; nil before it is first idle
}

func newChannels(open func(h driver.Handle) *channel.Client) *channels {
	return &channels{open: open, of: make(map[driver.Handle]*session)}
}

// use returns the session with a sandbox. The caller must call done after the operation. Errors: Unavailable
// after close.
func (c *channels) use(h driver.Handle) (client *channel.Client, done func(), err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return nil, nil, sandbox.Errorf(sandbox.Unavailable, "docker: sandbox %s: the executor is closed", h.SandboxID)
	}
	s := c.of[h]
	switch {
	case s == nil:
		s = &session{client: c.open(h)}
		c.of[h] = s
	case s.users == 0:
		c.idle--
		s.end.Stop() // if the timer fires nevertheless, it sees the user
	}
	s.users++
	return s.client, sync.OnceFunc(func() { c.done(h, s) }), nil
}

// done ends one use. If forget removed the session meanwhile, forget also closes it.
func (c *channels) done(h driver.Handle, s *session) {
	c.mu.Lock()
	defer c.mu.Unlock()
	s.users--
	if s.users > 0 || c.of[h] != s {
		return
	}
	c.idle++
	s.since = time.Now()
	if s.end == nil {
		s.end = time.AfterFunc(channelIdle, func() { c.expire(h, s) })
	} else {
		s.end.Reset(channelIdle)
	}
	if c.idle > maxIdleChannels {
		c.forget(c.oldest())
	}
}

// expire closes a session that is still idle.
func (c *channels) expire(h driver.Handle, s *session) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.of[h] == s && s.users == 0 && time.Since(s.since) >= channelIdle {
		c.forget(h)
	}
}

// oldest returns the sandbox whose session has been idle longest. The caller must hold mu.
func (c *channels) oldest() (h driver.Handle) {
	var since time.Time
	for of, s := range c.of {
		if s.users == 0 && (since.IsZero() || s.since.Before(since)) {
			h, since = of, s.since
		}
	}
	return h
}

// forget closes a session without waiting. The caller must hold mu.
func (c *channels) forget(h driver.Handle) {
	s := c.of[h]
	if s == nil {
		return
	}
	delete(c.of, h)
	if s.users == 0 {
		c.idle--
		s.end.Stop()
	}
	c.closing.Go(func() { _ = s.client.Close() }) // pending calls return its error
}

// leave closes the session with a sandbox, if there is one.
func (c *channels) leave(h driver.Handle) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.forget(h)
}

// existing calls do with the session of a sandbox, if there is one.
func (c *channels) existing(h driver.Handle, do func(*channel.Client)) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if s := c.of[h]; s != nil {
		do(s.client)
	}
}

// close closes all sessions and waits for them.
func (c *channels) close() {
	c.mu.Lock()
	c.closed = true
	for h := range c.of {
		c.forget(h)
	}
	c.mu.Unlock()
	c.closing.Wait()
}

// openChannel returns a session with a sandbox, through its ledger's relay.
func (e *Executor) openChannel(h driver.Handle) *channel.Client {
	return channel.NewClient(channel.ClientConfig{
		Name: objects.ProviderName, Log: e.engine.Log.With("sandbox", h.SandboxID),
		Redial: channel.Backoff{Max: maxRedial},
		Dial:   func(ctx context.Context) (net.Conn, error) { return e.relays.Dial(ctx, h) },
	})
}
