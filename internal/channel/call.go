package channel

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"

	"github.com/hashicorp/yamux"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/guest/wire"
)

// opened is the result of opening a stream.
type opened struct {
	stream *yamux.Stream
	err    error
}

// call carries out an operation over the session. It returns the caller's slot after its stream is closed.
func (l *link) call(ctx context.Context, request []byte, s Streams) (wire.Result, error) {
	first := appendRequest(make([]byte, 0, 4+len(request)+inputHeader), request)
	if s.Stdin == nil {
		first = appendHead(first, inputEnd, 0)
	}
	opening := make(chan opened, 1)
	sending, done := context.WithCancel(l.client.ctx)
	l.client.wg.Go(func() { l.open(sending, opening, first, s.Stdin) })
	var o opened
	select {
	case o = <-opening:
	case <-ctx.Done():
		done()
		l.client.wg.Go(func() { l.finish(<-opening) })
		return wire.Result{}, ctx.Err()
	}
	defer l.client.wg.Go(func() { l.finish(o) })
	defer done()
	if o.err != nil {
		return wire.Result{}, l.lost(o.err)
	}
	return l.receive(ctx, o.stream, s)
}

// finish closes a stream and returns the caller's slot.
func (l *link) finish(o opened) {
	if o.err == nil {
		o.stream.Close() //nolint:errcheck // the session reports its end
	}
	<-l.client.slots
}

// open opens a stream and sends the request. It may block on the guest; its caller need not wait for it.
func (l *link) open(ctx context.Context, opening chan<- opened, first []byte, stdin io.Reader) {
	stream, err := l.mux.OpenStream()
	opening <- opened{stream, err}
	if err != nil {
		return
	}
	out := paced{ctx, l.session, stream}
	if _, err := out.Write(first); err != nil || stdin == nil {
		return // the reader of the stream sees its end
	}
	// The caller owns a reader that may block here, see Streams. The reader of the stream sees its end.
	go sendInput(out, stdin) //nolint:errcheck // see above
}

var pieces = sync.Pool{New: func() any { return new([32 << 10]byte) }}

// receive parses the guest's answer.
func (l *link) receive(ctx context.Context, stream *yamux.Stream, s Streams) (wire.Result, error) {
	defer context.AfterFunc(ctx, func() {
		stream.SetReadDeadline(time.Unix(1, 0)) //nolint:errcheck // it always returns nil
	})()
	answer := wire.Demux{Stdout: s.Stdout, Stderr: s.Stderr, Begins: s.Begins}
	piece, _ := pieces.Get().(*[32 << 10]byte)
	defer pieces.Put(piece)
	for {
		n, err := stream.Read(piece[:])
		if ctx.Err() != nil {
			return wire.Result{}, ctx.Err()
		}
		if _, err := answer.Write(piece[:n]); err != nil {
			return wire.Result{}, fmt.Errorf("read the guest's answer: %w", err)
		}
		if result, ok := answer.Result(); ok {
			return result, nil
		}
		if err != nil {
			return wire.Result{}, l.lost(err)
		}
	}
}

// lost is the error of an operation whose stream ended without a result.
func (l *link) lost(err error) error {
	if reason := l.reason(); reason != nil {
		err = reason
	} else if errors.Is(err, io.EOF) {
		err = errors.New("the guest ended the operation without a result")
	}
	l.stateMu.Lock()
	defer l.stateMu.Unlock()
	return &Lost{Life: l.life, cause: err}
}
