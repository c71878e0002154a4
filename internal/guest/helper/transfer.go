package helper

import (
	"context"
	"errors"
	"io"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/channel"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/driver"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// CopyTo implements driver.Runner. Entries unpacked before a refused entry stay.
func (g Guests) CopyTo(ctx context.Context, h driver.Handle, dir string, tar io.Reader) error {
	dir, err := sandbox.CleanPath(dir)
	if err != nil {
		return sandbox.InvalidFields("files", []sandbox.Field{{Name: "dir", Problem: err.Error()}})
	}
	return g.transfer(ctx, h, "write files under "+dir, sandbox.ReasonWriteFailed,
		Call{Request: channel.Request{Op: channel.OpPut, Path: []byte(dir)}, Stdin: tar})
}

// CopyFrom implements driver.Runner. An incomplete stream ends with an error.
func (g Guests) CopyFrom(ctx context.Context, h driver.Handle, path string) (io.ReadCloser, error) {
	path, err := sandbox.CleanPath(path)
	if err != nil {
		return nil, sandbox.InvalidFields("files", []sandbox.Field{{Name: "path", Problem: err.Error()}})
	}
	ctx, cancel := context.WithCancel(ctx)
	pr, pw := io.Pipe()
	f := &outgoing{PipeReader: pr, cancel: cancel, done: make(chan struct{}), first: make(chan struct{})}
	go func() { // it ends with the stream; Close waits for it
		defer close(f.done)
		f.err = g.transfer(ctx, h, "read "+path, sandbox.ReasonCopyFailed,
			Call{Request: channel.Request{Op: channel.OpGet, Path: []byte(path)}, Stdout: f.announce(pw)})
		pw.CloseWithError(f.err) // nil gives EOF
	}()
	select {
	case <-f.first:
		return f, nil
	case <-f.done: // ended before any content
		if f.err == nil {
			return f, nil
		}
		return nil, errors.Join(f.err, f.Close())
	}
}

// outgoing is a tar stream from a sandbox.
type outgoing struct {
	*io.PipeReader
	cancel context.CancelFunc
	first  chan struct{} // closed when content arrives
	done   chan struct{} // closed when the transfer has ended, with err
	err    error
}

// Close ends the transfer and waits until it has ended.
func (f *outgoing) Close() error {
	err := f.PipeReader.Close()
	f.cancel()
	<-f.done
	return err
}

// announce returns a writer that closes first before its first write.
func (f *outgoing) announce(w io.Writer) io.Writer { return &announcer{w: w, first: f.first} }

type announcer struct {
	w         io.Writer
	first     chan struct{}
	announced bool
}

func (a *announcer) Write(p []byte) (int, error) {
	if !a.announced {
		a.announced = true
		close(a.first)
	}
	return a.w.Write(p)
}
