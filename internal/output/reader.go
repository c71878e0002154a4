package output

import (
	"context"
	"io"
)

// Reader reads the output of a running command.
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

// NewReader returns a Reader of a pipe. A goroutine writes into the pipe until cancel is called.
func NewReader(from *io.PipeReader, cancel context.CancelFunc) *Reader {
	return &Reader{PipeReader: from, cancel: cancel, done: make(chan struct{})}
}

// End records that the writing goroutine has ended.
func (r *Reader) End() { close(r.done) }

// Counted counts the bytes that reach a writer, which may be nil.
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
