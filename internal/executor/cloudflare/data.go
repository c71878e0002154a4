package cloudflare

import (
	"context"
	"io"
	"net/http"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/driver"
)

// Export implements driver.Exporter: it returns the saved copy of /data, which it saves first if the sandbox is awake.
// The sandbox is not frozen while the stream is read.
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

// stream is the body of an answer. A body that breaks off ends with an error, not with io.EOF.
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
	s.cancel() // the rest is not read
	return s.ReadCloser.Close()
}
