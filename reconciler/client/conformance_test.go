package client_test

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/service"
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
func handlerOf(t testing.TB, env servicetest.Env) (handler http.Handler, token string) {
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

// hasty is a service whose commands write before they read their input, or do not read it at all.
type hasty struct {
	service.Service
	reads bool
}

func (h hasty) Exec(_ context.Context, _ sandbox.LeaseRef, r sandbox.ExecRequest) (res sandbox.ExecResult, err error) {
	if _, err := io.WriteString(r.Stdout, "ready"); err != nil || !h.reads || r.Stdin == nil {
		return res, err
	}
	_, err = io.Copy(io.Discard, r.Stdin)
	return res, err
}

// TestCommandsReuseTheirConnection: each new connection would cost a TLS handshake.
func TestCommandsReuseTheirConnection(t *testing.T) {
	t.Parallel()
	inMemory := func(size int) func() io.Reader {
		return func() io.Reader { return bytes.NewReader(bytes.Repeat([]byte{0xff}, size)) }
	}
	streamed := func(size int) func() io.Reader {
		return func() io.Reader { return io.MultiReader(inMemory(size)()) }
	}
	for name, test := range map[string]struct {
		reads, http2 bool
		input        func() io.Reader
		connections  int64 // for 5 commands
	}{
		"no input":    {true, false, func() io.Reader { return nil }, 1},
		"short input": {true, false, inMemory(64 << 10), 1},
		"short input that the command does not read": {false, false, inMemory(128 << 10), 1},
		"long input": {true, false, inMemory(4 << 20), 5},
		"input of unknown length that the command does not read": {false, false, streamed(4 << 20), 5},
		"input that the command does not read, over HTTP/2":      {false, true, streamed(4 << 20), 1},
		"input of unknown length, over HTTP/2":                   {true, true, streamed(4 << 20), 1},
		"empty input, over HTTP/2":                               {true, true, inMemory(0), 1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			handler, text := handlerOf(t, servicetest.Env{Service: hasty{reads: test.reads}, Now: time.Now})
			var connections atomic.Int64
			server := httptest.NewUnstartedServer(handler)
			server.Config.ConnState = func(_ net.Conn, state http.ConnState) {
				if state == http.StateNew {
					connections.Add(1)
				}
			}
			config := client.Config{Token: text}
			if server.EnableHTTP2 = test.http2; test.http2 {
				server.StartTLS()
				config.TLS = &tls.Config{MinVersion: tls.VersionTLS12, RootCAs: roots(server)}
			} else {
				server.Start()
			}
			t.Cleanup(server.Close)
			config.URL = server.URL
			c, err := client.New(config)
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = c.Close() })
			for range 5 {
				var out bytes.Buffer
				req := sandbox.ExecRequest{Command: []string{"cat"}, Stdin: test.input(), Stdout: &out}
				if _, err := c.Exec(t.Context(), ref, req); err != nil || out.String() != "ready" {
					t.Fatalf("it wrote %q: %v", &out, err)
				}
			}
			if made := connections.Load(); made != test.connections {
				t.Errorf("5 commands made %d connections, want %d", made, test.connections)
			}
		})
	}
}
