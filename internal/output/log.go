package output

import (
	"context"
	"errors"
	"io"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/lifecycle"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// SendLog sends a log. It calls began, once it is known, with the offset of the first byte.
type SendLog func(ctx context.Context, to io.Writer, began func(offset int64)) error

// Log sends the log of a program. Each part must continue the one before.
type Log struct {
	to         io.Writer
	from, next int64
	began      func(offset int64)
	begun      bool
}

// NewLog returns a Log from an offset on. It calls began, once it is known, with the offset of the first byte.
func NewLog(from int64, to io.Writer, began func(offset int64)) *Log {
	return &Log{to: to, from: from, next: from, began: began}
}

// HasBegun reports whether it is known where the log begins.
func (l *Log) HasBegun() bool { return l.begun }

// Replay returns the request for the log of a run. of names it in errors.
func (l *Log) Replay(of, run string, now bool) sandbox.Replay {
	return sandbox.Replay{
		ID: run, Now: now, Stdout: Counted{W: l.to, At: &l.next}, StdoutOffset: l.from,
		Begins: func(offset int64) error {
			if !l.begun {
				l.next, l.begun = offset, true
				l.began(offset)
			}
			if offset == l.next {
				return nil
			}
			return sandbox.Errorf(sandbox.Unavailable, "%s: its log continues at byte %d, because it was written faster than "+
				"it was read: read on from there", of, offset)
		},
	}
}

// OpenLog reads a log, and ends the use of its sandbox when the reading ends. Errors: as send, unless the log has
// begun.
func OpenLog(ctx context.Context, use *lifecycle.Use, send SendLog) (sandbox.ProcessLog, error) {
	reading, cancel := context.WithCancel(ctx)
	out, in := io.Pipe()
	r := &logReader{Reader: NewReader(out, cancel), use: use}
	begins := make(chan int64, 1)
	began := func(offset int64) {
		select {
		case begins <- offset:
		default: // the beginning is known already
		}
	}
	go func() { // ends with the reader, which waits for it
		defer r.End()
		in.CloseWithError(send(reading, in, began)) // nil means EOF
		close(begins)
	}()
	if offset, ok := <-begins; ok {
		return sandbox.ProcessLog{ReadCloser: r, Offset: offset}, nil
	}
	_, err := out.Read(nil) // the error of send
	return sandbox.ProcessLog{}, errors.Join(asLogError(err), r.Close())
}

// asLogError returns the error of a log that did not begin.
func asLogError(err error) error {
	if err == nil || errors.Is(err, io.EOF) {
		return sandbox.Errorf(sandbox.Unavailable, "the backend did not say where the log begins: read again")
	}
	return err
}

// logReader reads a log, and keeps its sandbox awake meanwhile.
type logReader struct {
	*Reader
	use *lifecycle.Use
}

// Close ends the reading, and waits until it has ended.
func (r *logReader) Close() error {
	err := r.Reader.Close()
	return errors.Join(err, r.use.Leave(context.Background(), true, nil))
}

// CheckLogOffset refuses a negative offset. Errors: Invalid.
func CheckLogOffset(what string, offset int64) error {
	if offset >= 0 {
		return nil
	}
	return sandbox.InvalidFields(what, []sandbox.Field{{Name: "offset", Problem: "must not be negative"}})
}
