package relay

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"path/filepath"
	"sync"
	"time"

	"golang.org/x/sys/unix"
	"golang.org/x/time/rate"
)

// Bounds of one sandbox, which is taken to be hostile.
const (
	// maxParked is how many connections wait; a further one takes the place of the oldest.
	maxParked = 8
	// maxTaken is how many connections reconcilers use at once.
	maxTaken = 16
	// dialsPerSecond and dialsAtOnce slow a sandbox that dials without end. Those beyond wait in the kernel, where
	// pendingDials bounds them; then the sandbox's own dial waits.
	dialsPerSecond = 20
	dialsAtOnce    = 32
	pendingDials   = 16
)

// leftPoll is how often a client is looked at that waits for a sandbox.
const leftPoll = 250 * time.Millisecond

// endpoint is a sandbox's socket, and the connections that it has made.
type endpoint struct {
	listener *net.UnixListener
	log      *slog.Logger
	stop     context.CancelFunc // ends accepting
	accepts  sync.WaitGroup

	mu      sync.Mutex // guards what follows
	parked  []*net.UnixConn
	taken   map[*net.UnixConn]struct{}
	arrival chan struct{} // closed, and replaced, when a connection is parked
	closed  bool
}

func newEndpoint(dir string, owner int, log *slog.Logger) (*endpoint, error) {
	l, err := listenAt(filepath.Join(dir, ChannelSocket), owner)
	if err != nil {
		return nil, err
	}
	if err := limitPending(l); err != nil {
		return nil, errors.Join(err, l.Close())
	}
	ctx, stop := context.WithCancel(context.Background())
	p := &endpoint{listener: l, log: log, stop: stop, taken: make(map[*net.UnixConn]struct{}), arrival: make(chan struct{})}
	p.accepts.Go(func() { p.accept(ctx) })
	return p, nil
}

// limitPending bounds the dials that the kernel keeps before they are accepted.
func limitPending(l *net.UnixListener) error {
	raw, err := l.SyscallConn()
	if err != nil {
		return err
	}
	var listenErr error
	err = raw.Control(func(fd uintptr) { listenErr = unix.Listen(int(fd), pendingDials) })
	return errors.Join(err, listenErr)
}

func (p *endpoint) accept(ctx context.Context) {
	pace := rate.NewLimiter(dialsPerSecond, dialsAtOnce)
	for pace.Wait(ctx) == nil {
		conn, err := p.listener.AcceptUnix()
		switch {
		case err == nil:
			p.park(conn)
		case errors.Is(err, net.ErrClosed):
			return
		default:
			p.log.Warn("a sandbox's connection could not be accepted; trying again", "error", err)
			pause(ctx, acceptPause)
		}
	}
}

func (p *endpoint) park(conn *net.UnixConn) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		_ = conn.Close() // the sandbox was removed meanwhile
		return
	}
	if len(p.parked) == maxParked {
		_ = p.parked[0].Close() // the sandbox has newer ones
		p.parked = append(p.parked[:0], p.parked[1:]...)
	}
	p.parked = append(p.parked, conn)
	close(p.arrival)
	p.arrival = make(chan struct{})
}

// take returns the newest connection that the sandbox still has. It waits for one, but no longer than wait, nor for a
// client that leaves. Errors: ErrAbsent, ErrUnknown once the endpoint is closed, ErrFull.
func (p *endpoint) take(ctx context.Context, wait time.Duration, client *net.UnixConn) (*net.UnixConn, error) {
	late := time.NewTimer(wait)
	defer late.Stop()
	look := time.NewTicker(leftPoll)
	defer look.Stop()
	for {
		conn, arrival, err := p.pick()
		if conn != nil || err != nil {
			return conn, err
		}
		for waiting := true; waiting; {
			select {
			case <-arrival:
				waiting = false
			case <-look.C:
				if hasLeft(client) {
					return nil, ErrAbsent
				}
			case <-late.C:
				return nil, ErrAbsent
			case <-ctx.Done():
				return nil, ErrAbsent
			}
		}
	}
}

// pick takes a parked connection, or returns what is closed when the next one comes.
func (p *endpoint) pick() (*net.UnixConn, <-chan struct{}, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return nil, nil, ErrUnknown
	}
	if len(p.taken) >= maxTaken {
		return nil, nil, fmt.Errorf("%w: %d connections of the sandbox are in use", ErrFull, maxTaken)
	}
	for len(p.parked) > 0 {
		last := len(p.parked) - 1
		conn := p.parked[last]
		p.parked = p.parked[:last]
		if hasLeft(conn) {
			_ = conn.Close() // as its other end did
			continue
		}
		p.taken[conn] = struct{}{}
		return conn, nil, nil
	}
	return nil, p.arrival, nil
}

// drop closes a connection that was taken.
func (p *endpoint) drop(conn *net.UnixConn) {
	_ = conn.Close() // its bytes were passed on, or have no reader
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.taken, conn)
}

// cut ends the connections that reconcilers use, also those that are lent.
func (p *endpoint) cut() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for conn := range p.taken {
		_, _ = conn.CloseRead(), conn.CloseWrite() // of one that has ended, nothing is left to end
	}
}

// close closes all connections of the sandbox; one that is lent lives on with its reconciler. The socket stays until its directory goes, or until it is replaced.
func (p *endpoint) close() {
	p.stop()
	_ = p.listener.Close() // no dial is accepted any more
	p.mu.Lock()
	p.closed = true
	for _, conn := range p.parked {
		_ = conn.Close()
	}
	p.parked = nil
	for conn := range p.taken {
		_ = conn.Close() // drop forgets it
	}
	close(p.arrival)
	p.arrival = make(chan struct{})
	p.mu.Unlock()
	p.accepts.Wait()
}

// hasLeft reports whether the other end of a connection sends no more. It takes no byte from it.
func hasLeft(conn *net.UnixConn) bool {
	raw, err := conn.SyscallConn()
	if err != nil {
		return true
	}
	left := true
	err = raw.Control(func(fd uintptr) {
		n, _, err := unix.Recvfrom(int(fd), make([]byte, 1), unix.MSG_PEEK|unix.MSG_DONTWAIT)
		left = err == nil && n == 0 || err != nil && !errors.Is(err, unix.EAGAIN) && !errors.Is(err, unix.EINTR)
	})
	return left || err != nil
}
