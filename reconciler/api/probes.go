package api

import (
	"context"
	"net/http"
	"sync"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

const (
	livePath  = "/livez"
	readyPath = "/readyz"
	// readyWithin is when a probe is answered at the latest: probes give up after a second.
	readyWithin = 750 * time.Millisecond
	// readyTimeout bounds one check of readiness, whose answer is shared by all who wait for it.
	readyTimeout = 5 * time.Second
	// readyFor is how long the answer of a check is good: a probe needs no token.
	readyFor = time.Second
)

func (s *server) registerProbes(d *document) {
	probe := func(path, id, summary string, handler http.HandlerFunc) {
		s.mux.HandleFunc("GET "+path, handler)
		d.api.OpenAPI().AddOperation(&huma.Operation{OperationID: id, Method: http.MethodGet, Path: path, Summary: summary,
			Tags: []string{"probes"}, Responses: map[string]*huma.Response{"200": {Description: "Yes."}, "503": {Description: "No."}}})
	}
	probe(livePath, "livez", "Does the process run?", func(w http.ResponseWriter, _ *http.Request) {
		writeJSON(w, map[string]string{"status": "ok"})
	})
	probe(readyPath, "readyz", "Can the service do its work?", func(w http.ResponseWriter, r *http.Request) {
		if err := s.readiness.ask(r.Context()); err != nil {
			// To anybody it is told that it is so; why names what this program is made of.
			s.refuse(w, r, newProblem(sandbox.Unavailable, "", "not ready: the ledger cannot be read and written; the log says why", nil, err))
			return
		}
		writeJSON(w, map[string]string{"status": "ok"})
	})
}

// readiness asks whether the service can work, once for all who want to know.
type readiness struct {
	check func(ctx context.Context) error // nil: it always can
	now   func() time.Time

	mu      sync.Mutex // guards what follows
	running chan struct{}
	at      time.Time
	err     error
}

// ask returns the answer of the last check, or of one that is begun now. A check that takes too long goes on, and
// has no owner that waits: it ends with what it waits for.
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
		return sandbox.Errorf(sandbox.Unavailable, "checking takes longer than %s: %w", readyWithin, ctx.Err())
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.err
}

// begin returns what is closed once there is an answer that is good.
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
