package relay

import (
	"errors"
	"net"
	"sync"

	"golang.org/x/sys/unix"
)

// lent is a connection of a sandbox that a reconciler uses by itself, so that no byte passes through the relay. The
// relay keeps a descriptor to cut the connection. It does not poll it, because each message would wake it.
type lent struct {
	mu sync.Mutex
	fd int // -1: closed
}

func newLent(conn *net.UnixConn) (*lent, error) {
	raw, err := conn.SyscallConn()
	if err != nil {
		return nil, err
	}
	l := &lent{fd: -1}
	var copyErr error
	err = raw.Control(func(fd uintptr) { l.fd, copyErr = unix.FcntlInt(fd, unix.F_DUPFD_CLOEXEC, 0) })
	return l, errors.Join(err, copyErr)
}

// with calls f with the descriptor.
func (l *lent) with(f func(fd int) error) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.fd < 0 {
		return net.ErrClosed
	}
	return f(l.fd)
}

// sendTo sends a client the descriptor.
func (l *lent) sendTo(client *net.UnixConn) error {
	return l.with(func(fd int) error {
		_, _, err := client.WriteMsgUnix([]byte{0}, unix.UnixRights(fd), nil)
		return err
	})
}

// CloseRead ends the receiving side, for every process that has the connection.
func (l *lent) CloseRead() error {
	return l.with(func(fd int) error { return unix.Shutdown(fd, unix.SHUT_RD) })
}

// CloseWrite ends the sending side, for every process that has the connection.
func (l *lent) CloseWrite() error {
	return l.with(func(fd int) error { return unix.Shutdown(fd, unix.SHUT_WR) })
}

// Close closes the relay's descriptor. The connection goes on.
func (l *lent) Close() error {
	return l.with(func(fd int) error {
		l.fd = -1
		return unix.Close(fd)
	})
}
