package api_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/service"
	"github.com/sandbox-lease/terraform-provider-sandbox/reconciler/access"
	"github.com/sandbox-lease/terraform-provider-sandbox/reconciler/api"
	"github.com/sandbox-lease/terraform-provider-sandbox/reconciler/internal/pipetest"
	"github.com/sandbox-lease/terraform-provider-sandbox/reconciler/internal/wire"
	"github.com/sandbox-lease/terraform-provider-sandbox/reconciler/webhook"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// bodyTime is the time limit for senders of bodies in these tests.
const bodyTime = 20 * time.Second

// sink is a service that reads its input, after some other work.
type sink struct {
	service.Service
	work time.Duration
	read int64
	err  error
}

func (s *sink) WriteFile(_ context.Context, _ sandbox.LeaseRef, _ sandbox.FileWrite, content io.Reader) error {
	time.Sleep(s.work)
	s.read, s.err = io.Copy(io.Discard, content)
	return s.err
}

func (s *sink) Exec(ctx context.Context, _ sandbox.LeaseRef, req sandbox.ExecRequest) (sandbox.ExecResult, error) {
	s.read, s.err = io.Copy(io.Discard, req.Stdin)
	return sandbox.ExecResult{}, errors.Join(s.err, ctx.Err())
}

func (s *sink) CreateSession(ctx context.Context, _ sandbox.LeaseRef,
	_ sandbox.CreateSession) (sandbox.Session, error) {
	time.Sleep(s.work)
	return sandbox.Session{}, ctx.Err()
}

func (s *sink) DeleteEnvironment(ctx context.Context, _ sandbox.DeleteEnvironment) error {
	time.Sleep(s.work)
	return ctx.Err()
}

// slow is the API on a network with a fake clock.
type slow struct {
	*testing.T
	service  *sink
	token    string
	listener *pipetest.Listener
}

func onSlowNetwork(t *testing.T, test func(w *slow)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		w := &slow{T: t, service: &sink{}, token: access.NewToken(), listener: pipetest.Listen(t)}
		token, err := access.MakeToken("test", w.token)
		if err != nil {
			t.Fatal(err)
		}
		secret, err := webhook.ParseSecret(webhook.NewSecret())
		if err != nil {
			t.Fatal(err)
		}
		handler, err := api.New(api.Config{
			Service:     w.service,
			Tokens:      []access.Token{token},
			Secrets:     webhook.Secrets{secret},
			BodyTimeout: bodyTime,
		})
		if err != nil {
			t.Fatal(err)
		}
		server := &http.Server{Handler: handler, ReadHeaderTimeout: time.Hour} //nolint:gosec // with the test's fake clock
		served := make(chan error)
		go func() { served <- server.Serve(w.listener) }()
		t.Cleanup(func() {
			if err := server.Close(); err != nil {
				t.Error(err)
			}
			if err := <-served; !errors.Is(err, http.ErrServerClosed) {
				t.Error(err)
			}
		})
		test(w)
	})
}

// begin sends the head of a request, without its body.
func (w *slow) begin(method, path string, header ...string) net.Conn {
	w.Helper()
	c := w.listener.Dial("192.0.2.7:1")
	var head strings.Builder
	fmt.Fprintf(&head, "%s %s HTTP/1.1\r\nHost: x\r\n", method, path)
	for i := 0; i+1 < len(header); i += 2 {
		fmt.Fprintf(&head, "%s: %s\r\n", header[i], header[i+1])
	}
	w.write(c, head.String()+"\r\n")
	return c
}

func (w *slow) write(c net.Conn, text string) {
	w.Helper()
	if _, err := io.WriteString(c, text); err != nil {
		w.Fatal(err)
	}
}

// answer reads the answer, and returns how long it took.
func (w *slow) answer(c net.Conn) (status int, body string, closes bool, took time.Duration) {
	w.Helper()
	began := time.Now()
	a, err := http.ReadResponse(bufio.NewReader(c), nil)
	if err != nil {
		w.Fatal(err)
	}
	took = time.Since(began)
	text, err := io.ReadAll(a.Body)
	if err != nil {
		w.Fatal(err)
	}
	return a.StatusCode, string(text), a.Close, took
}

// wantClosed checks that a connection closes within a time.
func (w *slow) wantClosed(c net.Conn, within time.Duration) {
	w.Helper()
	began := time.Now()
	if err := c.SetReadDeadline(began.Add(time.Hour)); err != nil && !errors.Is(err, io.ErrClosedPipe) {
		w.Fatal(err)
	}
	if _, err := c.Read(make([]byte, 1)); !errors.Is(err, io.EOF) && !errors.Is(err, io.ErrClosedPipe) ||
		time.Since(began) > within {
		w.Errorf("after %s: %v", time.Since(began), err)
	}
}

const upload = "/v1/leases/did:plc:ann::catan-7/files?path=/workspace/map"

// TestAnUnfinishedBodyWithoutACredentialHoldsNoConnection: if the answer does not depend on the body, it comes
// immediately.
func TestAnUnfinishedBodyWithoutACredentialHoldsNoConnection(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		method, path string
		header       []string
		status       int
		after        time.Duration
	}{
		"no token":        {"PUT", upload, nil, 401, 0},
		"a wrong token":   {"PUT", upload, []string{"Authorization", "Bearer " + access.NewToken()}, 401, 0},
		"no route":        {"POST", "/nowhere", nil, 404, 0},
		"an unsigned one": {"POST", "/v1/conditions", nil, 401, 0},
		"a wrong signature": {"POST", "/v1/conditions", []string{webhook.HeaderSignature, "v1,AAAA", webhook.HeaderID, "m",
			webhook.HeaderTimestamp, "1"}, 408, bodyTime},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			onSlowNetwork(t, func(w *slow) {
				c := w.begin(test.method, test.path, append(test.header, "Content-Length", "100000", "Content-Type", wire.JSON)...)
				go func() { _, _ = io.WriteString(c, "{") }() // the server may answer without reading it
				status, body, closes, took := w.answer(c)
				if status != test.status || !closes || took != test.after {
					t.Errorf("after %s it is answered with %d, closes %t: %s", took, status, closes, body)
				}
				w.wantClosed(c, bodyTime+time.Second)
			})
		})
	}
}

// TestABodyInTricklesWithoutACredentialIsCutOff: bytes do not extend the sender's deadline.
func TestABodyInTricklesWithoutACredentialIsCutOff(t *testing.T) {
	t.Parallel()
	onSlowNetwork(t, func(w *slow) {
		c := w.begin("POST", "/v1/conditions", webhook.HeaderSignature, "v1,AAAA", "Content-Length", "1000",
			"Content-Type", wire.JSON)
		began := time.Now()
		var sending sync.WaitGroup
		sending.Go(func() {
			for range 1000 {
				if _, err := io.WriteString(c, " "); err != nil {
					return
				}
				time.Sleep(time.Second)
			}
		})
		if status, body, _, _ := w.answer(c); status != 408 || time.Since(began) > bodyTime {
			t.Errorf("after %s it is answered with %d: %s", time.Since(began), status, body)
		}
		w.wantClosed(c, bodyTime)
		sending.Wait()
	})
}

func TestASlowButSteadyUploadSucceeds(t *testing.T) {
	t.Parallel()
	onSlowNetwork(t, func(w *slow) {
		w.service.work = 10 * bodyTime // waking a sandbox, during which nothing is read
		c := w.begin("PUT", upload, "Authorization", "Bearer "+w.token, "Content-Length", "100")
		go func() {
			for range 100 {
				_, _ = io.WriteString(c, "x") // the answer reports an error
				time.Sleep(bodyTime - time.Second)
			}
		}()
		if status, body, _, took := w.answer(c); status != 204 || w.service.read != 100 || took < 99*(bodyTime-time.Second) {
			t.Errorf("after %s it is answered with %d (%s), and %d bytes were read", took, status, body, w.service.read)
		}
		w.write(c, "DELETE /v1/environments/catan-7 HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer "+w.token+"\r\n\r\n")
		if status, body, _, took := w.answer(c); status != 204 || took != w.service.work {
			t.Errorf("the next request on the connection is answered with %d after %s: %s", status, took, body)
		}
	})
}

func TestAnUploadThatStopsIsCutOff(t *testing.T) {
	t.Parallel()
	onSlowNetwork(t, func(w *slow) {
		c := w.begin("PUT", upload, "Authorization", "Bearer "+w.token, "Content-Length", "100")
		w.write(c, "some of it")
		if status, body, _, took := w.answer(c); status < 400 || took != bodyTime || w.service.err == nil {
			t.Errorf("after %s it is answered with %d: %s", took, status, body)
		}
		w.wantClosed(c, bodyTime)
	})
}

// TestARequestMayTakeLongerThanItsBody: a complete body leaves no deadline behind.
func TestARequestMayTakeLongerThanItsBody(t *testing.T) {
	t.Parallel()
	onSlowNetwork(t, func(w *slow) {
		w.service.work = 10 * bodyTime
		c := w.begin("POST", "/v1/leases/did:plc:ann::catan-7/sessions", "Authorization", "Bearer "+w.token, "Content-Type",
			wire.JSON, "Content-Length", "2")
		w.write(c, "{}")
		if status, body, _, took := w.answer(c); status >= 400 || took != w.service.work {
			t.Errorf("after %s it is answered with %d: %s", took, status, body)
		}
	})
}

// TestInputMayPauseForAsLongAsItLikes: a person may type the input. The request before it must not pause.
func TestInputMayPauseForAsLongAsItLikes(t *testing.T) {
	t.Parallel()
	header := func(w *slow) []string {
		return []string{"Authorization", "Bearer " + w.token, "Content-Type", wire.NDJSON, "Transfer-Encoding", "chunked"}
	}
	chunk := func(text string) string { return fmt.Sprintf("%x\r\n%s\r\n", len(text), text) }
	onSlowNetwork(t, func(w *slow) {
		c := w.begin("POST", "/v1/leases/did:plc:ann::catan-7/exec", header(w)...)
		go func() {
			_, _ = io.WriteString(c, chunk(`{"command":["cat"]}`+"\n"))
			time.Sleep(5 * time.Hour)
			_, _ = io.WriteString(c, chunk(`{"data":"hello"}`)+"0\r\n\r\n")
		}()
		if status, body, _, took := w.answer(c); status != 200 || took != 5*time.Hour || w.service.read != 5 {
			t.Errorf("after %s it is answered with %d: %s", took, status, body)
		}
	})
	onSlowNetwork(t, func(w *slow) {
		c := w.begin("POST", "/v1/leases/did:plc:ann::catan-7/exec", header(w)...)
		w.write(c, "100\r\n{")
		if status, body, _, took := w.answer(c); status < 400 || took != bodyTime {
			t.Errorf("after %s it is answered with %d: %s", took, status, body)
		}
	})
}
