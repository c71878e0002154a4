package client_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sandbox-lease/terraform-provider-sandbox/reconciler/client"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

const (
	token = "a-token-that-nobody-may-see"
	lease = "did:plc:ann::catan-7"
)

var (
	ref  = sandbox.LeaseRef{ID: lease}
	echo = sandbox.ExecRequest{Command: []string{"echo"}}
)

func newClient(t *testing.T, url string, change ...func(c *client.Config)) *client.Client {
	t.Helper()
	config := client.Config{URL: url, Token: token, Attempts: 3, WaitMin: time.Millisecond, WaitMax: 5 * time.Millisecond}
	for _, f := range change {
		f(&config)
	}
	c, err := client.New(config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	})
	return c
}

// faulty is a server that answers its first requests with faults, and later ones correctly.
type faulty struct {
	*httptest.Server
	requests atomic.Int64
}

func serve(t *testing.T, faults int, fault, good http.HandlerFunc) *faulty {
	t.Helper()
	f := &faulty{}
	f.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		if int(f.requests.Add(1)) <= faults {
			fault(w, r)
			return
		}
		good(w, r)
	}))
	t.Cleanup(f.Close)
	return f
}

func status(code int) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(code) }
}

func hangUp(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }

func body(text string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, text) }
}

func TestRepeatableRequestsAreRepeated(t *testing.T) {
	t.Parallel()
	calls := map[string]func(c *client.Client) error{
		"get": func(c *client.Client) error { _, err := c.GetLease(t.Context(), lease); return err },
		"acquire": func(c *client.Client) error {
			_, err := c.Acquire(t.Context(), sandbox.Acquire{AgentDID: "did:plc:ann", EnvironmentID: "catan-7"})
			return err
		},
		"release": func(c *client.Client) error { _, err := c.Release(t.Context(), ref); return err },
		"put": func(c *client.Client) error {
			_, err := c.PutEnvironment(t.Context(), sandbox.PutEnvironment{ID: "catan-7"})
			return err
		},
		"deliver": func(c *client.Client) error {
			_, err := c.Deliver(t.Context(), sandbox.Delivery{ID: "m", Body: []byte("{}")})
			return err
		},
	}
	for name, call := range calls {
		for what, fault := range map[string]http.HandlerFunc{
			"429": status(429), "502": status(502), "503": status(503), "504": status(504), "a lost connection": hangUp,
		} {
			server := serve(t, 2, fault, body("{}"))
			if err := call(newClient(t, server.URL)); err != nil || server.requests.Load() != 3 {
				t.Errorf("%s after two of %s: %d requests, %v", name, what, server.requests.Load(), err)
			}
			server = serve(t, 9, fault, body("{}"))
			err := call(newClient(t, server.URL))
			if !sandbox.IsRetryable(err) || server.requests.Load() != 3 {
				t.Errorf("%s after many of %s: %d requests, %v", name, what, server.requests.Load(), err)
			}
		}
		for _, code := range []int{400, 404, 409, 422, 500} {
			server := serve(t, 9, status(code), body("{}"))
			if err := call(newClient(t, server.URL)); err == nil || server.requests.Load() != 1 {
				t.Errorf("%s after %d: %d requests, %v", name, code, server.requests.Load(), err)
			}
		}
	}
}

func TestAWaitThatRunsOutIsNotRepeated(t *testing.T) {
	t.Parallel()
	server := serve(t, 9, status(504), nil)
	_, err := newClient(t, server.URL).WaitProcess(t.Context(),
		sandbox.ProcessWait{ProcessRef: sandbox.ProcessRef{LeaseRef: ref, Name: "p"}, Exit: true})
	if err == nil || server.requests.Load() != 1 {
		t.Errorf("%d requests, %v", server.requests.Load(), err)
	}
}

// TestCommandsAreSentOnce: the client never repeats a command that may have run.
func TestCommandsAreSentOnce(t *testing.T) {
	t.Parallel()
	collected := func(c *client.Client) error { _, err := c.Exec(t.Context(), ref, echo); return err }
	streamed := func(c *client.Client) error {
		req := echo
		req.Stdin, req.Stdout = strings.NewReader("x"), io.Discard
		_, err := c.Exec(t.Context(), ref, req)
		return err
	}
	createOnly := func(c *client.Client) error {
		_, err := c.PutEnvironment(t.Context(), sandbox.PutEnvironment{ID: "catan-7", CreateOnly: true})
		return err
	}
	for name, call := range map[string]func(c *client.Client) error{
		"collected":   collected,
		"streamed":    streamed,
		"create only": createOnly,
	} {
		for what, fault := range map[string]http.HandlerFunc{
			"502": status(502), "504": status(504), "a lost connection": hangUp, "half an answer": body(`{"exit_code":`),
		} {
			server := serve(t, 9, fault, body("{}"))
			err := call(newClient(t, server.URL))
			if sandbox.CodeOf(err) != sandbox.UnknownOutcome || server.requests.Load() != 1 {
				t.Errorf("%s after %s: %d requests, %v", name, what, server.requests.Load(), err)
			}
		}
	}
	server := serve(t, 1, status(503), body(`{"exit_code":0,"duration":"1s"}`)) // 503: the reconciler started nothing
	if err := collected(newClient(t, server.URL)); err != nil || server.requests.Load() != 2 {
		t.Errorf("after 503: %d requests, %v", server.requests.Load(), err)
	}
	server = serve(t, 9, body(`{"stream":"stdout","data":"half of it"}`+"\n"), nil)
	if err := streamed(newClient(t, server.URL)); sandbox.CodeOf(err) != sandbox.UnknownOutcome {
		t.Errorf("a stream without an end: %v", err)
	}
}

func TestRetryAfterIsObeyed(t *testing.T) {
	t.Parallel()
	server := serve(t, 1, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Retry-After", "1")
		w.WriteHeader(http.StatusServiceUnavailable)
	}, body("{}"))
	c := newClient(t, server.URL, func(c *client.Config) { c.WaitMax = time.Minute })
	began := time.Now()
	if _, err := c.Ledger(t.Context()); err != nil {
		t.Fatal(err)
	}
	if waited := time.Since(began); waited < time.Second {
		t.Errorf("it came back after %v", waited)
	}
}

func TestNothingListens(t *testing.T) {
	t.Parallel()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	url := "http://" + listener.Addr().String()
	if err := listener.Close(); err != nil {
		t.Fatal(err)
	}
	c := newClient(t, url)
	req := echo
	req.Stdout = io.Discard
	_, get := c.GetLease(t.Context(), lease)
	_, release := c.Release(t.Context(), ref)
	_, collected := c.Exec(t.Context(), ref, echo)
	_, streamed := c.Exec(t.Context(), ref, req)
	follow := c.FollowEvents(t.Context(), sandbox.EventFilter{}, func(sandbox.Event) error { return nil })
	for name, err := range map[string]error{
		"get":           get,
		"release":       release,
		"exec":          collected,
		"streamed exec": streamed,
		"follow":        follow,
	} {
		if sandbox.CodeOf(err) != sandbox.Unavailable || !strings.Contains(err.Error(), url) ||
			!strings.Contains(err.Error(), "check that the reconciler runs") {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestDeadlines(t *testing.T) {
	t.Parallel()
	never := make(chan struct{})
	server := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		select {
		case <-never:
		case <-r.Context().Done():
		}
	}))
	t.Cleanup(server.Close)
	t.Cleanup(func() { close(never) })
	c := newClient(t, server.URL,
		func(c *client.Config) { c.QuickTimeout, c.SlowTimeout = 50*time.Millisecond, 50*time.Millisecond })
	if _, err := c.GetLease(t.Context(), lease); sandbox.CodeOf(err) != sandbox.Unavailable {
		t.Errorf("get: %v", err)
	}
	if _, err := c.ReadFiles(t.Context(), ref, "a"); sandbox.CodeOf(err) != sandbox.Unavailable {
		t.Errorf("read: %v", err)
	}
	req := echo
	req.Timeout = sandbox.Duration(time.Millisecond)
	if _, err := c.Exec(t.Context(), ref, req); sandbox.CodeOf(err) != sandbox.UnknownOutcome {
		t.Errorf("exec: %v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := c.GetLease(ctx, lease); !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled: %v", err)
	}
}

// A check changes nothing, so the error for a lost answer must not say that it may have.
func TestALostCheckHasChangedNothing(t *testing.T) {
	t.Parallel()
	for what, fault := range map[string]http.HandlerFunc{
		"502": status(502), "504": status(504), "a lost connection": hangUp,
	} {
		server := serve(t, 9, fault, nil)
		err := newClient(t, server.URL).CheckEnvironment(t.Context(), sandbox.PutEnvironment{ID: "catan-7"})
		if sandbox.CodeOf(err) != sandbox.Unavailable || server.requests.Load() != 3 {
			t.Errorf("after %s: %d requests, %v", what, server.requests.Load(), err)
		}
	}
}

func TestAnswersOfOthersAreNotBelieved(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		answer http.HandlerFunc
		code   sandbox.Code
	}{
		"a 404 page":    {func(w http.ResponseWriter, r *http.Request) { http.NotFound(w, r) }, sandbox.Unavailable},
		"a login page":  {body("<html>please log in</html>"), sandbox.Unavailable},
		"a proxy's 401": {status(401), sandbox.Unauthenticated},
		"a proxy's 403": {status(403), sandbox.Forbidden},
		"another's JSON": {func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(500)
			_, _ = w.Write([]byte(`{"error":"x"}`))
		}, sandbox.Unavailable},
		"a redirect": {func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, "https://example.com/", http.StatusFound)
		}, sandbox.Unavailable},
	} {
		server := serve(t, 9, test.answer, nil)
		_, err := newClient(t, server.URL).GetLease(t.Context(), lease)
		if sandbox.CodeOf(err) != test.code || !strings.Contains(err.Error(), server.URL) {
			t.Errorf("%s: %s, %v", name, sandbox.CodeOf(err), err)
		}
	}
}

// The error names the credential that the request used.
func TestRejectedCredentialsAreNamed(t *testing.T) {
	t.Parallel()
	server := serve(t, 9, func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusUnauthorized)
		_, _ = io.WriteString(w, `{"code":"unauthenticated","detail":"unknown token"}`)
	}, nil)
	_, err := newClient(t, server.URL).GetLease(t.Context(), lease)
	if text := fmt.Sprint(err); !strings.Contains(text, "rejects the token: unknown token") ||
		strings.Contains(text, "webhook") {
		t.Errorf("the error about a token is %v", err)
	}
	signing := newClient(t, server.URL, func(c *client.Config) {
		c.Token, c.Sign = "", func(h http.Header, _ string, _ []byte) error {
			h.Set("Webhook-Signature", "v1,of-the-test")
			return nil
		}
	})
	_, err = signing.Deliver(t.Context(), sandbox.Delivery{ID: "msg_1", Body: []byte("{}")})
	if text := fmt.Sprint(err); !strings.Contains(text, "check the webhook secret") || strings.Contains(text, "TOKEN") {
		t.Errorf("the error about a signature is %v", err)
	}
}

// The reconciler reads no signature of a request with a token.
func TestASignedConditionIsSentWithoutTheToken(t *testing.T) {
	t.Parallel()
	sent := make(chan http.Header, 2)
	keep := func(w http.ResponseWriter, r *http.Request) {
		sent <- r.Header
		body("{}")(w, r)
	}
	c := newClient(t, serve(t, 0, nil, keep).URL, func(c *client.Config) {
		c.Sign = func(h http.Header, id string, body []byte) error {
			h.Set("Webhook-Signature", id+string(body))
			return nil
		}
	})
	if _, err := c.Deliver(t.Context(), sandbox.Delivery{ID: "msg_1", Body: []byte("{}")}); err != nil {
		t.Fatal(err)
	}
	if h := <-sent; h.Get("Authorization") != "" || h.Get("Webhook-Signature") != "msg_1{}" ||
		h.Get("Content-Type") != "application/json" {
		t.Errorf("a condition has the headers %v", h)
	}
	if _, err := c.Ledger(t.Context()); err != nil {
		t.Fatal(err)
	}
	if h := <-sent; h.Get("Authorization") != "Bearer "+token {
		t.Errorf("another request has the headers %v", h)
	}
}

func TestProblemsBecomeErrors(t *testing.T) {
	t.Parallel()
	server := serve(t, 9, func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusConflict)
		_, _ = io.WriteString(w, `{"code":"conflict","reason":"other_settings","detail":"lives with other settings","fields":[{"name":"ttl","problem":"is 1h"}]}`)
	}, nil)
	_, err := newClient(t, server.URL).Acquire(t.Context(), sandbox.Acquire{})
	e, ok := errors.AsType[*sandbox.Error](err)
	if !ok || e.Code != sandbox.Conflict || e.Reason != sandbox.ReasonOtherSettings ||
		e.Message != "lives with other settings" ||
		len(e.Fields) != 1 || e.Fields[0] != (sandbox.Field{Name: "ttl", Problem: "is 1h"}) {
		t.Errorf("the error is %#v", err)
	}
}

func TestFollowingReconnectsAfterTheLastEvent(t *testing.T) {
	t.Parallel()
	var asked []string
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked = append(asked, r.URL.RawQuery)
		switch len(asked) {
		case 1:
			_, _ = io.WriteString(w, "id: 7\nevent: sandbox.ready\ndata: {\"id\":7}\n\n: idle\n\nid: 8\ndata: {\"id\":8}\n\n")
			if err := http.NewResponseController(w).Flush(); err != nil {
				t.Error(err)
			}
			panic(http.ErrAbortHandler)
		case 2:
			w.WriteHeader(http.StatusServiceUnavailable)
		default:
			_, _ = io.WriteString(w,
				"id: 9\ndata: {\"id\":9}\n\nevent: error\ndata: {\"code\":\"not_found\",\"detail\":\"gone\"}\n\n")
		}
	}))
	t.Cleanup(server.Close)
	var ids []int64
	err := newClient(t, server.URL).FollowEvents(t.Context(), sandbox.EventFilter{EnvironmentID: "catan-7"},
		func(e sandbox.Event) error {
			ids = append(ids, e.ID)
			return nil
		})
	if sandbox.CodeOf(err) != sandbox.NotFound || len(ids) != 3 || ids[2] != 9 {
		t.Errorf("it brought %v and ended with %v", ids, err)
	}
	want := []string{"environment_id=catan-7", "after_id=8&environment_id=catan-7", "after_id=8&environment_id=catan-7"}
	if strings.Join(asked, " ") != strings.Join(want, " ") {
		t.Errorf("it asked %q, want %q", asked, want)
	}
	stop := sandbox.Errorf(sandbox.Unavailable, "the reader has enough") // retryable, but from the reader itself
	count := 0
	err = newClient(t, server.URL).FollowEvents(t.Context(), sandbox.EventFilter{},
		func(sandbox.Event) error { count++; return stop })
	if !errors.Is(err, stop) || count != 1 {
		t.Errorf("after %d events it ended with %v", count, err)
	}
}

func TestConfigIsChecked(t *testing.T) {
	t.Parallel()
	for _, c := range []client.Config{
		{Token: token},
		{URL: "reconciler:8787", Token: token}, {URL: "ftp://x", Token: token}, {URL: "http://", Token: token},
		{URL: "http://user:" + token + "@x", Token: token}, {URL: "http://x?token=" + token, Token: token}, {URL: "http://x"},
	} {
		_, err := client.New(c)
		if sandbox.CodeOf(err) != sandbox.Invalid || strings.Contains(err.Error(), token) {
			t.Errorf("%+v: %v", c, err)
		}
	}
}

func TestLogsHoldNoToken(t *testing.T) {
	t.Parallel()
	var log bytes.Buffer
	server := serve(t, 2, status(503), body("{}"))
	c := newClient(t, server.URL, func(c *client.Config) {
		c.Logger = slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelDebug}))
	})
	if _, err := c.Ledger(t.Context()); err != nil {
		t.Fatal(err)
	}
	if text := log.String(); strings.Contains(text, token) || !strings.Contains(text, "/v1/ledger") {
		t.Errorf("the log is %s", text)
	}
}
