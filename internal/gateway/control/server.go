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
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/gateway/credential"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/gateway/llm"
)

// maxBody limits a request, in bytes.
const maxBody = 1 << 20

// Limits of connections to the control interface. Its clients are ours.
const (
	headerTime   = 10 * time.Second
	keepAlive    = 10 * time.Minute
	shutdownTime = 5 * time.Second
)

// Handler returns the control interface.
//
//	PUT    /v1/settings        Settings
//	PUT    /v1/sandboxes/{id}  Sandbox
//	DELETE /v1/sandboxes/{id}
//	GET    /v1/status          -> Status
//	GET    /v1/attempts?run=&line=   -> Attempts, the oldest after that position
//	PUT    /v1/llm             llm.Config
//	GET    /v1/llm/calls?run=&line=  -> Calls, the oldest after that position
//	PUT    /v1/credentials     credential.Config
//
// Errors are plain text: 400 for an invalid request, 500 for a failure.
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
		answer(w, m.Status(), nil)
	})
	mux.HandleFunc("GET /v1/attempts", func(w http.ResponseWriter, r *http.Request) {
		after, ok := position(w, r)
		if !ok {
			return
		}
		entries, err := m.spool.After(after)
		answer(w, Attempts{entries}, err)
	})
	mux.HandleFunc("PUT /v1/llm", func(w http.ResponseWriter, r *http.Request) {
		var c llm.Config
		if readSecret(w, r, "the LLM routes", &c) {
			done(w, m.llm.Set(c))
		}
	})
	mux.HandleFunc("PUT /v1/credentials", func(w http.ResponseWriter, r *http.Request) {
		var c credential.Config
		if readSecret(w, r, "the credentials", &c) {
			done(w, m.broker.Set(c))
		}
	})
	mux.HandleFunc("GET /v1/llm/calls", func(w http.ResponseWriter, r *http.Request) {
		after, ok := position(w, r)
		if !ok {
			return
		}
		entries, err := m.llm.Calls(after)
		answer(w, Calls{entries}, err)
	})
	return mux
}

func read(w http.ResponseWriter, r *http.Request, v any) bool {
	if err := decode(w, r, v); err != nil {
		http.Error(w, "read the request: "+err.Error(), http.StatusBadRequest)
		return false
	}
	return true
}

// readSecret reads a body that contains keys.
func readSecret(w http.ResponseWriter, r *http.Request, what string, v any) bool {
	if err := decode(w, r, v); err != nil {
		http.Error(w, "read "+what+": "+withoutValues(err), http.StatusBadRequest)
		return false
	}
	return true
}

// answer sends v, or the error.
func answer(w http.ResponseWriter, v any, err error) {
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(v) // the client may have gone
}

func decode(w http.ResponseWriter, r *http.Request, v any) error {
	decoder := json.NewDecoder(http.MaxBytesReader(w, r.Body, maxBody))
	decoder.DisallowUnknownFields() // an unknown field may be a rule, which must not be applied in part
	return decoder.Decode(v)
}

// withoutValues describes an error of decode without any content of the body, which contains keys.
func withoutValues(err error) string {
	var syntax *json.SyntaxError
	var kind *json.UnmarshalTypeError
	var size *http.MaxBytesError
	switch {
	case errors.As(err, &syntax):
		return fmt.Sprintf("the body is not valid JSON at byte %d", syntax.Offset)
	case errors.As(err, &kind):
		return fmt.Sprintf("a value of a wrong type ends at byte %d: it must be of type %s", kind.Offset, kind.Type)
	case errors.As(err, &size):
		return fmt.Sprintf("the body has more than %d bytes", size.Limit)
	default:
		return "the body is incomplete, has an unknown field, or an amount that is not a decimal number; the service and " +
			"the gateway may be of different releases"
	}
}

// position reads a position from a query. If it is invalid, position answers and returns false.
func position(w http.ResponseWriter, r *http.Request) (after audit.Position, ok bool) {
	var err error
	if after.Run, err = strconv.ParseInt(r.FormValue("run"), 10, 64); err == nil {
		after.Line, err = strconv.ParseInt(r.FormValue("line"), 10, 64)
	}
	if err != nil {
		http.Error(w, "run and line must be numbers: "+err.Error(), http.StatusBadRequest)
		return after, false
	}
	return after, true
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

// Serve serves the control interface on its socket until ctx ends.
func (m *Manager) Serve(ctx context.Context) error {
	socket := m.path(Dir, Socket)
	if err := os.Remove(socket); err != nil && !errors.Is(err, fs.ErrNotExist) { // a previous gateway left it
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
