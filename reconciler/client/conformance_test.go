package client_test

import (
	"bytes"
	"encoding/json"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/servicetest"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/servicetest/inprocess"
	"github.com/sandbox-lease/terraform-provider-sandbox/reconciler/access"
	"github.com/sandbox-lease/terraform-provider-sandbox/reconciler/api"
	"github.com/sandbox-lease/terraform-provider-sandbox/reconciler/client"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// TestServiceOverHTTP: a client of the API behaves like the service in process.
func TestServiceOverHTTP(t *testing.T) {
	t.Parallel()
	servicetest.Run(t, servicetest.Config{New: func(t *testing.T) servicetest.Env {
		t.Helper()
		env := inprocess.New(t)
		handler, text := handlerOf(t, env)
		server := httptest.NewServer(withoutNull(t, handler))
		t.Cleanup(server.Close)
		c, err := client.New(client.Config{URL: server.URL, Token: text, Attempts: 1})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if err := c.Close(); err != nil {
				t.Error(err)
			}
		})
		env.Service = c
		return env
	}})
}

// handlerOf returns the API of a service, and a token that it accepts.
func handlerOf(t *testing.T, env servicetest.Env) (handler http.Handler, token string) {
	t.Helper()
	token = access.NewToken()
	known, err := access.MakeToken("suite", token)
	if err != nil {
		t.Fatal(err)
	}
	handler, err = api.New(api.Config{
		Service: env.Service,
		Tokens:  []access.Token{known},
		Now:     env.Now,
		Logger:  slog.New(slog.NewTextHandler(t.Output(), nil)),
		// Followers learn with the idle lines how far they are.
		KeepAlive: 100 * time.Millisecond,
	})
	if err != nil {
		t.Fatal(err)
	}
	return handler, token
}

// withoutNull fails the test if a JSON answer contains null: the document allows it for no field.
func withoutNull(t *testing.T, next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		kept := &keeping{ResponseWriter: w}
		next.ServeHTTP(kept, r)
		var answer any
		if !strings.HasPrefix(w.Header().Get("Content-Type"), "application/json") ||
			json.Unmarshal(kept.body.Bytes(), &answer) != nil {
			return
		}
		if at := nullIn(answer); at != "" {
			t.Errorf("the answer to %s %s has null at %s: %s", r.Method, r.URL.Path, at, kept.body.String())
		}
	})
}

// nullIn returns the path of a null in a value, "" if there is none.
func nullIn(v any) string {
	switch v := v.(type) {
	case nil:
		return "."
	case []any:
		for _, x := range v {
			if at := nullIn(x); at != "" {
				return "[]" + at
			}
		}
	case map[string]any:
		for name, x := range v {
			if at := nullIn(x); at != "" {
				return "." + name + at
			}
		}
	}
	return ""
}

// keeping records the body of an answer.
type keeping struct {
	http.ResponseWriter
	body bytes.Buffer
}

func (k *keeping) Write(b []byte) (int, error) {
	k.body.Write(b)
	return k.ResponseWriter.Write(b)
}

// Unwrap gives http.ResponseController access to the connection.
func (k *keeping) Unwrap() http.ResponseWriter { return k.ResponseWriter }

// TestCommandsReuseTheirConnection: each new connection would cost a TLS handshake.
func TestCommandsReuseTheirConnection(t *testing.T) {
	t.Parallel()
	handler, text := handlerOf(t, inprocess.New(t))
	var connections atomic.Int64
	server := httptest.NewUnstartedServer(handler)
	server.Config.ConnState = func(_ net.Conn, state http.ConnState) {
		if state == http.StateNew {
			connections.Add(1)
		}
	}
	server.Start()
	t.Cleanup(server.Close)
	c, err := client.New(client.Config{URL: server.URL, Token: text})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	if _, err := c.PutEnvironment(t.Context(), sandbox.PutEnvironment{
		ID: "catan-7", EnvironmentSpec: sandbox.EnvironmentSpec{Type: sandbox.TypeRPG, Image: "player"},
	}); err != nil {
		t.Fatal(err)
	}
	acquired, err := c.Acquire(t.Context(), sandbox.Acquire{AgentDID: "did:plc:abc", EnvironmentID: "catan-7"})
	if err != nil {
		t.Fatal(err)
	}
	before := connections.Load()
	for range 5 {
		req := sandbox.ExecRequest{Command: []string{"cat"}, Stdin: strings.NewReader("hello")}
		if _, err := c.Exec(t.Context(), sandbox.LeaseRef{ID: acquired.Lease.ID}, req); err != nil {
			t.Fatal(err)
		}
	}
	if made := connections.Load() - before; made > 1 {
		t.Errorf("5 commands made %d connections, want them to share one", made)
	}
}
