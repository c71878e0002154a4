package reconciler

import (
	"context"
	"log/slog"
	"net"
	"net/http"
	"time"

	"github.com/sandbox-lease/terraform-provider-sandbox/reconciler/api/stream"
	"github.com/sandbox-lease/terraform-provider-sandbox/reconciler/internal/connlimit"
)

// The times of a shutdown, from its beginning.
const (
	// streamsTimeout is when it cancels streams. Their clients reconnect where they stopped.
	streamsTimeout = 5 * time.Second
	// requestsTimeout is when it cancels all other requests.
	requestsTimeout = 10 * time.Second
	// shutdownTimeout is when it no longer waits for cancelled requests.
	shutdownTimeout = 15 * time.Second
)

// server is an HTTP server whose shutdown gives requests time to end.
type server struct {
	http.Server
	endStreams, endRequests context.CancelFunc
}

// newServer returns a server. Its requests do not end with ctx, but with shutDown.
func newServer(ctx context.Context, handler http.Handler, log *slog.Logger) *server {
	requests, endRequests := context.WithCancel(context.WithoutCancel(ctx))
	streams, endStreams := context.WithCancel(requests)
	base := stream.WithEnd(requests, streams)
	return &server{http.Server{
		Handler: handler, ReadHeaderTimeout: headerTimeout, IdleTimeout: idleTimeout, MaxHeaderBytes: maxHeader,
		BaseContext: func(net.Listener) context.Context { return base },
		ConnContext: connlimit.ConnContext,
		ErrorLog:    slog.NewLogLogger(log.Handler(), slog.LevelDebug),
	}, endStreams, endRequests}
}

// shutDown takes no new requests, and waits for those that run.
func (s *server) shutDown() error {
	defer s.endRequests() // also those that have become other protocols
	defer time.AfterFunc(streamsTimeout, s.endStreams).Stop()
	defer time.AfterFunc(requestsTimeout, s.endRequests).Stop()
	ctx, cancel := context.WithTimeout(context.Background(), shutdownTimeout)
	defer cancel()
	return s.Shutdown(ctx)
}
