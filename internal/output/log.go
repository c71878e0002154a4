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

// OpenLog reads a log for as long as a use of its sandbox lasts, which ends with the reading. Errors: those of send,
// unless the log has begun.
func OpenLog(ctx context.Context, use *lifecycle.Use, send SendLog) (sandbox.ProcessLog, error) {
	reading, cancel := context.WithCancel(ctx)
	out, in := io.Pipe()
	r := &logReader{Reader: NewReader(out, cancel), use: use}
	begins := make(chan int64, 1)
	began := func(offset int64) {
		select {
		case begins <- offset:
		default: // it was known already
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
	_, err := out.Read(nil) // why not
	return sandbox.ProcessLog{}, errors.Join(asLogError(err), r.Close())
}

// asLogError is the error of a log that did not even begin.
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
