package cloudflare

import (
	"context"
	"net"
	"sync"
	"time"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/channel"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/driver"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

const (
	// sessionIdle is how long an unused session is kept: an open WebSocket keeps the sandbox's Durable Object in memory
	// and billed.
	sessionIdle = 10 * time.Second
	// maxRedial is the longest pause between two attempts to reach a sandbox.
	maxRedial = 2 * time.Second
)

// sessions holds the sessions with the sandboxes of one Worker.
type sessions struct {
	open func(h driver.Handle) *session

	mu      sync.Mutex // guards what follows
	of      map[driver.Handle]*session
	closed  bool
	closing sync.WaitGroup // sessions that are being closed
}

// session is a session with one sandbox. users counts the operations that use it.
type session struct {
	client *channel.Client
	books  *books
	users  int
	end    *time.Timer // closes it after sessionIdle; nil before it is first idle
}

func newSessions(open func(h driver.Handle) *session) *sessions {
	return &sessions{open: open, of: map[driver.Handle]*session{}}
}

// use returns the session with a sandbox. The caller calls leave after the operation. Errors: Unavailable after close.
func (s *sessions) use(h driver.Handle) (_ *session, leave func(), err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return nil, nil, sandbox.Errorf(sandbox.Unavailable, "cloudflare: sandbox %s: the connection to its Worker is closed",
			h.SandboxID)
	}
	found := s.of[h]
	if found == nil {
		found = s.open(h)
		s.of[h] = found
	} else if found.end != nil {
		found.end.Stop() // if it fires anyway, expire sees the user
	}
	found.users++
	return found, sync.OnceFunc(func() { s.leave(h, found) }), nil
}

func (s *sessions) leave(h driver.Handle, of *session) {
	s.mu.Lock()
	defer s.mu.Unlock()
	of.users--
	if of.users > 0 || s.of[h] != of {
		return
	}
	if of.end == nil {
		of.end = time.AfterFunc(sessionIdle, func() { s.expire(h, of) })
		return
	}
	of.end.Reset(sessionIdle)
}

func (s *sessions) expire(h driver.Handle, of *session) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.of[h] == of && of.users == 0 {
		s.forget(h)
	}
}

// forget closes a session without waiting. The caller holds mu.
func (s *sessions) forget(h driver.Handle) {
	of := s.of[h]
	delete(s.of, h)
	if of.end != nil {
		of.end.Stop()
	}
	s.closing.Go(func() { _ = of.client.Close() }) // pending calls get an error
}

// none reports whether no session is open.
func (s *sessions) none() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.of) == 0
}

// close closes all sessions, and waits until they are.
func (s *sessions) close() {
	s.mu.Lock()
	s.closed = true
	for h := range s.of {
		s.forget(h)
	}
	s.mu.Unlock()
	s.closing.Wait()
}

// openSession returns a session with a sandbox. It dials at its first operation.
func (w *Worker) openSession(h driver.Handle) *session {
	b := &books{open: map[string]begun{}}
	return &session{books: b, client: channel.NewClient(channel.ClientConfig{
		Name: "reconciler", Redial: channel.Backoff{Max: maxRedial},
		Dial: func(ctx context.Context) (net.Conn, error) {
			c, err := w.dial(ctx, h)
			if err != nil {
				return nil, err
			}
			b.attach(c)
			return c, nil
		},
	})}
}
