//go:build linux

package files

import (
	"context"
	"io"
)

// Buffers connect a caller's stream with the thread that works on files. Either side may wait while the other
// works, and the end of a context ends the thread's wait.
const (
	buffers    = 3
	bufferSize = 64 << 10
)

// source is an input. Its goroutine ends with the input, or with the first Read that returns after close.
type source struct {
	ctx    context.Context //nolint:containedctx // io.Reader has no context parameter
	full   chan []byte
	free   chan []byte
	closed chan struct{}
	err    error // the input's error, set before full is closed
	buffer []byte
	rest   []byte
}

func newSource(ctx context.Context, in io.Reader) *source {
	s := &source{ctx: ctx, full: make(chan []byte, buffers), free: make(chan []byte, buffers), closed: make(chan struct{})}
	for range buffers {
		s.free <- nil // allocated on demand
	}
	go s.fill(in)
	return s
}

func (s *source) fill(in io.Reader) {
	defer close(s.full)
	for {
		var b []byte
		select {
		case b = <-s.free:
		case <-s.closed:
			return
		}
		if b == nil {
			b = make([]byte, bufferSize)
		}
		n, err := in.Read(b[:bufferSize])
		if n > 0 {
			s.full <- b[:n] // the channel has room for all buffers
		} else if err == nil {
			s.free <- b
		}
		if err != nil {
			s.err = err
			return
		}
	}
}

// close ends the goroutine once its Read returns.
func (s *source) close() { close(s.closed) }

// Read implements io.Reader.
func (s *source) Read(p []byte) (int, error) {
	if len(s.rest) == 0 {
		if err := s.advance(); err != nil {
			return 0, err
		}
	}
	n := copy(p, s.rest)
	s.rest = s.rest[n:]
	return n, nil
}

func (s *source) advance() error {
	if s.buffer != nil {
		s.free <- s.buffer // the channel has room for all buffers
		s.buffer = nil
	}
	if err := s.ctx.Err(); err != nil {
		return err
	}
	select {
	case b, ok := <-s.full:
		if !ok {
			return s.err
		}
		s.buffer, s.rest = b, b
		return nil
	case <-s.ctx.Done():
		return s.ctx.Err()
	}
}

// sink is an output. Its goroutine ends with close, or with the first Write that returns after it.
type sink struct {
	ctx    context.Context //nolint:containedctx // as source has it
	full   chan []byte
	free   chan []byte
	done   chan struct{} // closed at the goroutine's end, after err is set
	err    error
	buffer []byte
}

func newSink(ctx context.Context, out io.Writer) *sink {
	s := &sink{ctx: ctx, full: make(chan []byte, buffers), free: make(chan []byte, buffers), done: make(chan struct{})}
	for range buffers {
		s.free <- nil // allocated on demand
	}
	go s.drain(out)
	return s
}

func (s *sink) drain(out io.Writer) {
	defer close(s.done)
	for b := range s.full {
		if s.err = s.ctx.Err(); s.err == nil {
			_, s.err = out.Write(b)
		}
		if s.err != nil {
			return
		}
		s.free <- b // the channel has room for all buffers
	}
}

// Write implements io.Writer.
func (s *sink) Write(p []byte) (int, error) {
	total := len(p)
	for len(p) > 0 {
		if s.buffer == nil {
			if err := s.take(); err != nil {
				return 0, err
			}
		}
		n := copy(s.buffer[len(s.buffer):bufferSize], p)
		s.buffer, p = s.buffer[:len(s.buffer)+n], p[n:]
		if len(s.buffer) == bufferSize {
			s.send()
		}
	}
	return total, nil
}

func (s *sink) take() error {
	select {
	case b := <-s.free:
		if b == nil {
			b = make([]byte, 0, bufferSize)
		}
		s.buffer = b[:0]
		return s.ctx.Err()
	case <-s.done:
		return s.err
	case <-s.ctx.Done():
		return s.ctx.Err()
	}
}

func (s *sink) send() {
	s.full <- s.buffer // the channel has room for all buffers
	s.buffer = nil
}

// close sends the rest and waits until it is written.
func (s *sink) close() error {
	if len(s.buffer) > 0 {
		s.send()
	}
	close(s.full)
	select {
	case <-s.done:
		return s.err
	case <-s.ctx.Done():
		return s.ctx.Err()
	}
}
