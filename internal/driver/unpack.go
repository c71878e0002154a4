package driver

import (
	"context"
	"errors"
	"io"
	"os"
	"sync"
)

// Unpack copies a tar stream into a sandbox with CopyTo, and closes the stream. It waits for a Read that outlasts
// CopyTo, so the stream must not block forever. unread is the stream's own read error, which is not the sandbox's
// fault.
func Unpack(ctx context.Context, to Runner, h Handle, dir string, stream io.ReadCloser) (unread, err error) {
	in := &lent{stream: stream}
	copied := to.CopyTo(ctx, h, dir, in)
	unread, closed := in.takeBack()
	return unread, errors.Join(copied, closed)
}

// lent is a stream whose reads fail once takeBack is called.
type lent struct {
	mu     sync.Mutex
	stream io.ReadCloser // nil after takeBack
	failed error
}

// Read implements io.Reader.
func (l *lent) Read(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.stream == nil {
		return 0, os.ErrClosed
	}
	n, err := l.stream.Read(p)
	if err != nil && !errors.Is(err, io.EOF) {
		l.failed = err
	}
	return n, err
}

// takeBack closes the stream. It returns the error of its reads and that of the close.
func (l *lent) takeBack() (failed, closed error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	closed, l.stream = l.stream.Close(), nil
	return l.failed, closed
}
