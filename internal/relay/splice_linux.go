package relay

import (
	"errors"
	"io"
	"net"
	"os"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// pieces are buffers for bytes in transit. Idle connections hold none, because a relay has many of them.
var pieces = sync.Pool{New: func() any { return new([64 << 10]byte) }}

// splice copies bytes both ways until both ends have finished sending, or either is closed.
func splice(a, b *net.UnixConn) {
	var back sync.WaitGroup
	back.Go(func() { pass(b, a) })
	pass(a, b)
	back.Wait()
}

// pass copies one direction including its end. If an end is completely closed, it closes the other one.
func pass(from, to *net.UnixConn) {
	err := copyAll(to, from)
	if err == nil && !hungUp(from) {
		err = to.CloseWrite()
		if err == nil {
			return
		}
	}
	_, _ = from.Close(), to.Close() // one end broke, so break both
}

// copyAll copies until from ends.
func copyAll(to, from *net.UnixConn) error {
	raw, err := from.SyscallConn()
	if err != nil {
		return err
	}
	for {
		err := passOne(to, from, raw)
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
	}
}

// passOne waits for bytes and copies them. It takes a buffer only once bytes have arrived.
func passOne(to, from *net.UnixConn, raw syscall.RawConn) error {
	var (
		piece   *[64 << 10]byte
		n       int
		readErr error
	)
	err := raw.Read(func(fd uintptr) bool {
		piece, _ = pieces.Get().(*[64 << 10]byte)
		for {
			if n, readErr = unix.Read(int(fd), piece[:]); !errors.Is(readErr, unix.EINTR) {
				break
			}
		}
		if errors.Is(readErr, unix.EAGAIN) {
			pieces.Put(piece)
			piece = nil
			return false
		}
		return true
	})
	if piece == nil {
		return errors.Join(err, net.ErrClosed)
	}
	defer pieces.Put(piece)
	switch {
	case err != nil || readErr != nil:
		return errors.Join(err, readErr)
	case n == 0:
		return io.EOF
	}
	return writeAll(to, from, piece[:n])
}

// writeAll waits for a slow or frozen reader while the sender is connected.
func writeAll(to, from *net.UnixConn, content []byte) error {
	for {
		if err := to.SetWriteDeadline(time.Now().Add(lingering)); err != nil {
			return err
		}
		n, err := to.Write(content)
		content = content[n:]
		if !errors.Is(err, os.ErrDeadlineExceeded) || hungUp(from) {
			return err
		}
	}
}

// hungUp reports whether the other end is closed, as opposed to having only stopped sending.
func hungUp(conn *net.UnixConn) bool {
	raw, err := conn.SyscallConn()
	if err != nil {
		return true
	}
	gone := false
	err = raw.Control(func(fd uintptr) {
		poll := []unix.PollFd{{Fd: int32(fd)}}
		_, err := unix.Poll(poll, 0)
		gone = err == nil && poll[0].Revents&(unix.POLLHUP|unix.POLLERR) != 0
	})
	return gone || err != nil
}
