package control

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/http"
	"os"
	"strconv"
	"time"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/gateway/audit"
)

// maxBody bounds a request, in bytes.
const maxBody = 1 << 20

// Limits of the interface's own connections. Its clients are ours.
const (
	headerTime   = 10 * time.Second
	keepAlive    = 10 * time.Minute
	shutdownTime = 5 * time.Second
)

// Handler returns the interface.
//
//	PUT    /v1/settings        Settings
//	PUT    /v1/sandboxes/{id}  Sandbox
//	DELETE /v1/sandboxes/{id}
//	GET    /v1/status          -> Status
//	GET    /v1/attempts?run=&line=  -> Attempts, the oldest after that position
//
// Errors are answered in plain text: 400 for what is not valid, 500 for what failed.
func (m *Manager) Handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("PUT /v1/settings", func(w http.ResponseWriter, r *http.Request) {
		var s Settings
		if read(w, r, &s) {
			done(w, m.Apply(s))
		}
	})
	mux.HandleFunc("PUT /v1/sandboxes/{id}", func(w http.ResponseWriter, r *http.Request) {
		var s Sandbox
		if read(w, r, &s) {
			s.ID = r.PathValue("id")
			done(w, m.Add(s))
		}
	})
	mux.HandleFunc("DELETE /v1/sandboxes/{id}", func(w http.ResponseWriter, r *http.Request) {
		done(w, m.Remove(r.PathValue("id")))
	})
	mux.HandleFunc("GET /v1/status", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(m.Status()) // the client may be gone
	})
	mux.HandleFunc("GET /v1/attempts", func(w http.ResponseWriter, r *http.Request) {
		var after audit.Position
		var err error
		if after.Run, err = strconv.ParseInt(r.FormValue("run"), 10, 64); err == nil {
			after.Line, err = strconv.ParseInt(r.FormValue("line"), 10, 64)
		}
		if err != nil {
			http.Error(w, "run and line must be numbers: "+err.Error(), http.StatusBadRequest)
			return
		}
		entries, err := m.spool.After(after)
		if err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(Attempts{entries}) // the client may be gone
	})
	return mux
}

func read(w http.ResponseWriter, r *http.Request, v any) bool {
	decoder := json.NewDecoder(http.MaxBytesReader(w, r.Body, maxBody))
	decoder.DisallowUnknownFields() // a rule that is not understood must not be half obeyed
	if err := decoder.Decode(v); err != nil {
		http.Error(w, "read the request: "+err.Error(), http.StatusBadRequest)
		return false
	}
	return true
}

func done(w http.ResponseWriter, err error) {
	var path *fs.PathError
	var op *net.OpError
	switch {
	case err == nil:
		w.WriteHeader(http.StatusNoContent)
	case errors.As(err, &path), errors.As(err, &op):
		http.Error(w, err.Error(), http.StatusInternalServerError)
	default:
		http.Error(w, err.Error(), http.StatusBadRequest)
	}
}

// Serve serves the interface on its socket until ctx ends.
func (m *Manager) Serve(ctx context.Context) error {
	socket := m.path(Dir, Socket)
	if err := os.Remove(socket); err != nil && !errors.Is(err, fs.ErrNotExist) { // of a gateway before this one
		return fmt.Errorf("serve the control socket: %w", err)
	}
	l, err := net.Listen("unix", socket)
	if err != nil {
		return fmt.Errorf("serve the control socket: %w", err)
	}
	server := &http.Server{Handler: m.Handler(), ReadHeaderTimeout: headerTime, IdleTimeout: keepAlive}
	stopped := make(chan error, 1)
	stop := context.AfterFunc(ctx, func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), shutdownTime)
		defer cancel()
		stopped <- server.Shutdown(ctx)
	})
	err = server.Serve(l)
	if stop() {
		return fmt.Errorf("serve the control socket: %w", err)
	}
	return <-stopped
}
