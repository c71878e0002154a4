package output

import (
	"context"
	"io"
)

// Reader reads what a command writes while it runs.
type Reader struct {
	*io.PipeReader
	cancel context.CancelFunc
	done   chan struct{}
}

// Close ends the reading, and waits until it has ended.
func (r *Reader) Close() error {
	err := r.PipeReader.Close()
	r.cancel()
	<-r.done
	return err
}

// NewReader reads from a pipe, into which a goroutine writes until cancel is called.
func NewReader(from *io.PipeReader, cancel context.CancelFunc) *Reader {
	return &Reader{PipeReader: from, cancel: cancel, done: make(chan struct{})}
}

// End notes that the goroutine which writes has ended.
func (r *Reader) End() { close(r.done) }

// Counted counts what reaches a writer, which may be nil.
type Counted struct {
	W  io.Writer
	At *int64
}

func (c Counted) Write(p []byte) (int, error) {
	n, err := len(p), error(nil)
	if c.W != nil {
		n, err = c.W.Write(p)
	}
	*c.At += int64(n)
	return n, err
}
