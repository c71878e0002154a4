package cloudflare

import (
	"context"
	"io"
	"net/http"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/driver"
)

// Export returns what lies in /data, as driver.Exporter has it: what was saved of it, after it has been saved
// now where the sandbox is awake. Nothing of the sandbox stands still while the stream is read.
func (w *Worker) Export(ctx context.Context, h driver.Handle) (io.ReadCloser, error) {
	r := onSandbox(h, http.MethodGet, "data", "read /data")
	ctx, cancel := context.WithCancel(ctx)
	answer, err := w.send(ctx, r, nil) //nolint:bodyclose // the stream closes it
	if err != nil {
		cancel()
		return nil, err
	}
	return &stream{answer.Body, r, cancel}, nil
}

// stream is the body of an answer, whose end is known: one that breaks off ends with an error.
type stream struct {
	io.ReadCloser
	request request
	cancel  context.CancelFunc
}

// Read implements io.Reader.
func (s *stream) Read(p []byte) (int, error) {
	n, err := s.ReadCloser.Read(p)
	if err != nil && err != io.EOF { //nolint:errorlint // the end itself is not wrapped
		err = lost(s.request, err)
	}
	return n, err
}

// Close implements io.Closer.
func (s *stream) Close() error {
	s.cancel() // what has not been read is not wanted
	return s.ReadCloser.Close()
}
