package api

import (
	"context"
	"net/http"
	"sync"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"github.com/sandbox-lease/terraform-provider-sandbox/reconciler/api/bodies"
	"github.com/sandbox-lease/terraform-provider-sandbox/reconciler/api/document"
	"github.com/sandbox-lease/terraform-provider-sandbox/reconciler/api/problem"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

const (
	livePath  = "/livez"
	readyPath = "/readyz"
	// readyWithin limits the response time of a probe, because clients time out after a second.
	readyWithin = 750 * time.Millisecond
	// readyTimeout limits one readiness check. All waiting probes share its result.
	readyTimeout = 5 * time.Second
	// readyFor is how long a result is cached, because probes need no token and could overload the ledger.
	readyFor = time.Second
)

func (s *server) registerProbes(d *document.Document) {
	probe := func(path, id, summary string, handler http.HandlerFunc) {
		s.mux.HandleFunc("GET "+path, handler)
		d.API.OpenAPI().AddOperation(&huma.Operation{
			OperationID: id,
			Method:      http.MethodGet,
			Path:        path,
			Summary:     summary,
			Tags:        []string{"probes"},
			Responses:   map[string]*huma.Response{"200": {Description: "Yes."}, "503": {Description: "No."}},
		})
	}
	probe(livePath, "livez", "Check that the process runs", func(w http.ResponseWriter, _ *http.Request) {
		bodies.WriteJSON(w, map[string]string{"status": "ok"})
	})
	probe(readyPath, "readyz", "Check that the service is ready", func(w http.ResponseWriter, r *http.Request) {
		if err := s.readiness.ask(r.Context()); err != nil {
			// Probes need no token, so the response does not reveal the cause.
			s.refuse(w, r,
				problem.New(sandbox.Unavailable, "", "not ready: the ledger cannot be read and written; see the log", nil, err))
			return
		}
		bodies.WriteJSON(w, map[string]string{"status": "ok"})
	})
}

// readiness checks whether the service can work. Concurrent probes share one check.
type readiness struct {
	check func(ctx context.Context) error // nil means always ready
	now   func() time.Time

	mu      sync.Mutex // guards the fields below
	running chan struct{}
	at      time.Time
	err     error
}

// ask returns the result of the last check, or of a new one. A slow check continues in the background until
// readyTimeout.
func (r *readiness) ask(ctx context.Context) error {
	if r.check == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, readyWithin)
	defer cancel()
	running := r.begin(ctx)
	select {
	case <-running:
	case <-ctx.Done():
		return sandbox.Errorf(sandbox.Unavailable, "checking readiness takes longer than %s: %w", readyWithin, ctx.Err())
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.err
}

// begin returns a channel that is closed once there is a valid result.
func (r *readiness) begin(ctx context.Context) <-chan struct{} {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.running != nil && (r.at.IsZero() || r.now().Before(r.at.Add(readyFor))) {
		return r.running
	}
	done := make(chan struct{})
	r.running, r.at = done, time.Time{}
	go func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), readyTimeout)
		defer cancel()
		err := r.check(ctx)
		r.mu.Lock()
		defer r.mu.Unlock()
		r.at, r.err = r.now(), err
		close(done)
	}()
	return done
}
