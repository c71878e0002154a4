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

// Limits of one sandbox, which may be hostile.
const (
	// maxParked limits waiting connections. One more replaces the oldest.
	maxParked = 8
	// maxTaken limits the connections that reconcilers use at the same time.
	maxTaken = 16
	// dialsPerSecond and dialsAtOnce slow down a sandbox that dials without end. Up to pendingDials further dials wait in
	// the kernel. After that, the sandbox's own dial blocks.
	dialsPerSecond = 20
	dialsAtOnce    = 32
	pendingDials   = 16
)

// leftPoll is the interval at which take checks whether a waiting client has left.
const leftPoll = 250 * time.Millisecond

// taking is a connection that a reconciler uses: a *net.UnixConn whose bytes pass through the relay, or a lent one.
type taking interface {
	CloseRead() error
	CloseWrite() error
	Close() error
}

// endpoint is a sandbox's socket with the sandbox's connections.
type endpoint struct {
	listener *net.UnixListener
	log      *slog.Logger
	stop     context.CancelFunc // stops accepting
	accepts  sync.WaitGroup

	mu      sync.Mutex // guards what follows
	parked  []*net.UnixConn
	taken   map[taking]struct{}
	arrival chan struct{} // closed and replaced when a connection is parked
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
	p := &endpoint{
		listener: l,
		log:      log,
		stop:     stop,
		taken:    make(map[taking]struct{}),
		arrival:  make(chan struct{}),
	}
	p.accepts.Go(func() { p.accept(ctx) })
	return p, nil
}

// limitPending limits the dials that the kernel queues.
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
			p.log.Warn("relay: a sandbox's connection could not be accepted; retrying", "error", err)
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

// take returns the sandbox's newest live connection. It waits for one until wait has passed or the client leaves.
// Errors: ErrAbsent; ErrUnknown after the endpoint is closed; ErrFull.
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

// pick takes a parked connection, or returns a channel that is closed when the next one arrives.
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
			_ = conn.Close() // its other end has closed it too
			continue
		}
		p.taken[conn] = struct{}{}
		return conn, nil, nil
	}
	return nil, p.arrival, nil
}

// hold replaces a taken connection by a lent one.
func (p *endpoint) hold(conn *net.UnixConn) (*lent, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return nil, net.ErrClosed
	}
	l, err := newLent(conn)
	if err != nil {
		return nil, err
	}
	delete(p.taken, conn)
	p.taken[l] = struct{}{}
	return l, conn.Close()
}

// drop closes a taken connection.
func (p *endpoint) drop(conn taking) {
	_ = conn.Close() // its bytes were copied, or have no reader
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.taken, conn)
}

// cut ends the connections that reconcilers use, including lent ones.
func (p *endpoint) cut() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for conn := range p.taken {
		_, _ = conn.CloseRead(), conn.CloseWrite() // the connection may already have ended
	}
}

// close closes all connections of the sandbox, but a lent one continues in its reconciler. The socket file stays until
// it is replaced or its directory is deleted.
func (p *endpoint) close() {
	p.stop()
	_ = p.listener.Close() // no more dials are accepted
	p.mu.Lock()
	p.closed = true
	for _, conn := range p.parked {
		_ = conn.Close()
	}
	p.parked = nil
	for conn := range p.taken {
		_ = conn.Close() // drop removes it from the list
	}
	close(p.arrival)
	p.arrival = make(chan struct{})
	p.mu.Unlock()
	p.accepts.Wait()
}

// hasLeft reports whether the other end of a connection has stopped sending. It consumes no byte.
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
