package proxy

import (
	"context"
	"errors"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"time"
)

// Causes of a relay's end, other than the end of both sides.
var (
	errIdle  = errors.New("the connection was idle for too long")
	errBytes = errors.New("the byte limit is reached")
)

// relay copies bytes both ways until both sides have ended, the connection is idle, the limit is reached, or ctx ends.
// Between TCP and unix sockets the kernel copies the bytes (splice).
type relay struct {
	client, server net.Conn
	idle           time.Duration
	limit          int64 // bytes in both directions together; 0 means none
	sent, received *atomic.Int64

	last atomic.Int64 // time of the last copied data, Unix nanoseconds
}

// run returns the cause of the relay's end: nil, errIdle, errBytes or ctx's cause. It closes both sides.
func (r *relay) run(ctx context.Context) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	stop := context.AfterFunc(ctx, func() { _, _ = r.client.Close(), r.server.Close() })
	defer stop()
	r.last.Store(time.Now().UnixNano())
	var wg sync.WaitGroup
	move := func(to, from net.Conn, count *atomic.Int64) {
		if err := r.move(to, from, count); err != nil {
			cancel(err) // one side is broken, so end the other
			return
		}
		if half, ok := to.(interface{ CloseWrite() error }); ok {
			_ = half.CloseWrite() // the other side may already be gone
		} else {
			cancel(io.EOF)
		}
	}
	wg.Go(func() { move(r.server, r.client, r.sent) })
	wg.Go(func() { move(r.client, r.server, r.received) })
	wg.Wait()
	cause := context.Cause(ctx)
	_, _ = r.client.Close(), r.server.Close()
	if errors.Is(cause, errIdle) || errors.Is(cause, errBytes) || errors.Is(cause, errCut) {
		return cause
	}
	return nil // the two sides see how a connection breaks
}

// move copies one direction to its end. Deadlines divide the copy into pieces. After each piece, move checks whether
// data has moved in either direction. A read times out after half the idle time and is retried. A write times out only
// after more than the idle time, and finally, because the data that it accepted is lost.
func (r *relay) move(to, from net.Conn, count *atomic.Int64) error {
	const pieces = 2
	reading, writing := r.idle/pieces, r.idle/pieces+r.idle
	for {
		began := time.Now()
		if err := errors.Join(from.SetReadDeadline(began.Add(reading)), to.SetWriteDeadline(began.Add(writing))); err != nil {
			return err
		}
		n, err := r.piece(to, from)
		count.Add(n)
		if n > 0 {
			r.last.Store(time.Now().UnixNano())
		}
		switch {
		case r.limit > 0 && r.sent.Load()+r.received.Load() >= r.limit:
			return errBytes
		case err == nil && n == 0, errors.Is(err, io.EOF):
			return nil
		case err == nil: // the end of the stream or of a piece
		case !isTimeout(err):
			return err
		case time.Since(time.Unix(0, r.last.Load())) >= r.idle, time.Since(began) >= writing:
			return errIdle
		}
	}
}

// limitStep is how far each direction may exceed the limit when both move, in bytes.
const limitStep = 64 << 10

// piece copies until an end, a deadline, or a step towards the limit.
func (r *relay) piece(to, from net.Conn) (int64, error) {
	if r.limit == 0 {
		return io.Copy(to, from)
	}
	left := max(r.limit-r.sent.Load()-r.received.Load(), 1)
	return io.CopyN(to, from, min(left, limitStep))
}
