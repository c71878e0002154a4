// Package channels holds sessions with process 1 of sandboxes, through the relays of their ledgers. It carries out
// calls over them.
package channels

import (
	"context"
	"log/slog"
	"net"
	"sync"
	"time"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/channel"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/driver"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/executor/docker/containers"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/executor/docker/objects"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/executor/docker/relays"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

const (
	// channelIdle is how long an unused session with a sandbox is kept.
	channelIdle = 5 * time.Minute
	// maxIdleChannels limits the idle sessions. Above it, the session that has been idle longest is closed.
	maxIdleChannels = 512
	// maxRedial is the longest pause between two attempts to reach a sandbox. After a fault, a sandbox must be reachable
	// again within 5 s.
	maxRedial = 2 * time.Second
)

// Channels are the sessions with sandboxes. They close idle ones.
type Channels struct {
	log        *slog.Logger
	containers *containers.Containers
	relays     *relays.Relays

	mu      sync.Mutex // guards what follows
	of      map[driver.Handle]*session
	idle    int // number of idle sessions
	closed  bool
	closing sync.WaitGroup // sessions that are being closed
}

// New returns the channels to sandboxes, through relays. log receives their reports.
func New(log *slog.Logger, boxes *containers.Containers, through *relays.Relays) *Channels {
	return &Channels{log: log, containers: boxes, relays: through, of: make(map[driver.Handle]*session)}
}

// session is one session and its number of users.
type session struct {
	client *channel.Client
	users  int
	since  time.Time   // when it became idle
	end    *time.Timer // closes the session after channelIdle; nil until it is first idle
}

// use returns the session with a sandbox. The caller must call done after the operation. Errors: Unavailable after
// Close.
func (cs *Channels) use(h driver.Handle) (client *channel.Client, done func(), err error) {
	cs.mu.Lock()
	defer cs.mu.Unlock()
	if cs.closed {
		return nil, nil, sandbox.Errorf(sandbox.Unavailable, "docker: sandbox %s: the executor is closed", h.SandboxID)
	}
	s := cs.of[h]
	switch {
	case s == nil:
		s = &session{client: cs.open(h)}
		cs.of[h] = s
	case s.users == 0:
		cs.idle--
		s.end.Stop() // if the timer fires anyway, it sees the user
	}
	s.users++
	return s.client, sync.OnceFunc(func() { cs.done(h, s) }), nil
}

// done ends one use. If forget removed the session meanwhile, the session is closing already.
func (cs *Channels) done(h driver.Handle, s *session) {
	cs.mu.Lock()
	defer cs.mu.Unlock()
	s.users--
	if s.users > 0 || cs.of[h] != s {
		return
	}
	cs.idle++
	s.since = time.Now()
	if s.end == nil {
		s.end = time.AfterFunc(channelIdle, func() { cs.expire(h, s) })
	} else {
		s.end.Reset(channelIdle)
	}
	if cs.idle > maxIdleChannels {
		cs.forget(cs.oldest())
	}
}

// expire closes a session that is still idle.
func (cs *Channels) expire(h driver.Handle, s *session) {
	cs.mu.Lock()
	defer cs.mu.Unlock()
	if cs.of[h] == s && s.users == 0 && time.Since(s.since) >= channelIdle {
		cs.forget(h)
	}
}

// oldest returns the sandbox whose session has been idle longest. The caller must hold mu.
func (cs *Channels) oldest() (h driver.Handle) {
	var since time.Time
	for of, s := range cs.of {
		if s.users == 0 && (since.IsZero() || s.since.Before(since)) {
			h, since = of, s.since
		}
	}
	return h
}

// forget closes a session without waiting. The caller must hold mu.
func (cs *Channels) forget(h driver.Handle) {
	s := cs.of[h]
	if s == nil {
		return
	}
	delete(cs.of, h)
	if s.users == 0 {
		cs.idle--
		s.end.Stop()
	}
	cs.closing.Go(func() { _ = s.client.Close() }) // pending calls return its error
}

// Leave closes the session with a sandbox, if there is one.
func (cs *Channels) Leave(h driver.Handle) {
	cs.mu.Lock()
	defer cs.mu.Unlock()
	cs.forget(h)
}

// Existing calls do with the session of a sandbox, if there is one.
func (cs *Channels) Existing(h driver.Handle, do func(*channel.Client)) {
	cs.mu.Lock()
	defer cs.mu.Unlock()
	if s := cs.of[h]; s != nil {
		do(s.client)
	}
}

// Close closes all sessions and waits for them.
func (cs *Channels) Close() {
	cs.mu.Lock()
	cs.closed = true
	for h := range cs.of {
		cs.forget(h)
	}
	cs.mu.Unlock()
	cs.closing.Wait()
}

// open returns a session with a sandbox, through its ledger's relay.
func (cs *Channels) open(h driver.Handle) *channel.Client {
	return channel.NewClient(channel.ClientConfig{
		Name: objects.ProviderName, Log: cs.log.With("sandbox", h.SandboxID),
		Redial: channel.Backoff{Max: maxRedial},
		Dial:   func(ctx context.Context) (net.Conn, error) { return cs.relays.Dial(ctx, h) },
	})
}
