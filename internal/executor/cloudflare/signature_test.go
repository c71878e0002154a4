package cloudflare_test

import (
	"context"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/executor/cloudflare"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/executor/cloudflare/cloudflaretest"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// tamper changes requests on their way.
type tamper func(*http.Request)

func (f tamper) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	f(r)
	return http.DefaultTransport.RoundTrip(r)
}

func (w *world) tampered(f tamper) *cloudflare.Worker {
	w.Helper()
	x, err := cloudflare.NewWorker(cloudflare.WorkerConfig{
		URL:  w.server.URL,
		Key:  w.server.Key,
		HTTP: &http.Client{Transport: f},
	})
	w.must(err)
	return x
}

// testSignature: a request has no effect unless the key's owner signed exactly this request just now.
func testSignature(w *world) {
	h := w.spawn(cloudflare.Limits{})
	other := w.spawn(cloudflare.Limits{})
	for name, f := range map[string]tamper{
		"no signature":   func(r *http.Request) { r.Header.Del("X-Sandbox-Signature") },
		"another one":    func(r *http.Request) { r.Header.Set("X-Sandbox-Signature", strings.Repeat("0", 64)) },
		"another method": func(r *http.Request) { r.Method = http.MethodDelete },
		"another sandbox": func(r *http.Request) {
			r.URL.Path = strings.Replace(r.URL.Path, h.SandboxID, other.SandboxID, 1)
		},
		"another verb": func(r *http.Request) { r.URL.Path = strings.Replace(r.URL.Path, "/sleep", "/wake", 1) },
		"a query":      func(r *http.Request) { r.URL.RawQuery = "x=1" },
		"another time": func(r *http.Request) { r.Header.Set("X-Sandbox-Time", "1700000000000") },
		"another body": func(r *http.Request) { setBody(r, `{"x":1}`) },
		"another content": func(r *http.Request) {
			r.Header.Set("X-Sandbox-Content", strings.Repeat("0", 64))
			setBody(r, "x")
		},
	} {
		w.Run(name, func(t *testing.T) {
			w := w.with(t)
			err := w.tampered(f).Sleep(t.Context(), h)
			if name == "another body" { // this request needs none, so it is not read
				w.must(err)
				w.must(w.worker.Wake(t.Context(), h))
				return
			}
			w.wantError(err, sandbox.Unavailable, "")
			if s := w.inspect(h); s.State != sandbox.StateRunning {
				t.Errorf("the Worker obeyed the request: %+v", s)
			}
		})
	}
	w.Run("other settings", func(t *testing.T) {
		w := w.with(t)
		spec := w.spec()
		x := w.tampered(func(r *http.Request) {
			body, err := io.ReadAll(r.Body)
			w.must(err)
			setBody(r, strings.Replace(string(body), `"internet":false`, `"internet":true`, 1))
		})
		w.wantError(x.Spawn(t.Context(), spec, cloudflare.Limits{}), sandbox.Unavailable, "")
		_, err := w.worker.Inspect(t.Context(), spec.Handle)
		w.wantError(err, sandbox.NotFound, sandbox.ReasonSandboxNotFound)
	})
	for name, f := range map[string]tamper{
		"another sandbox's channel": func(r *http.Request) {
			r.URL.Path = strings.Replace(r.URL.Path, h.SandboxID, other.SandboxID, 1)
		},
		"another nonce":       func(r *http.Request) { r.URL.RawQuery = "nonce=" + strings.Repeat("a", 32) },
		"an unsigned channel": func(r *http.Request) { r.Header.Del("X-Sandbox-Signature") },
	} {
		w.Run(name, func(t *testing.T) {
			w := w.with(t)
			_, err := w.tampered(f).Exec(t.Context(), h, echo(t))
			w.wantError(err, sandbox.Unavailable, "")
		})
	}
	w.Run("a channel that was seen before", func(t *testing.T) {
		w := w.with(t)
		var seen *http.Request
		x := w.tampered(func(r *http.Request) { seen = r.Clone(context.WithoutCancel(r.Context())) })
		_, err := x.Exec(t.Context(), h, echo(t))
		w.must(err)
		w.must(x.Close())
		answer, err := http.DefaultTransport.RoundTrip(seen)
		w.must(err)
		w.must(answer.Body.Close())
		if answer.StatusCode != http.StatusBadRequest {
			t.Errorf("the answer is %s", answer.Status)
		}
	})
	for name, age := range map[string]time.Duration{"too old": 2 * time.Minute, "not yet": -2 * time.Minute} {
		w.Run(name, func(t *testing.T) {
			w := w.with(t)
			x, err := cloudflare.NewWorker(cloudflare.WorkerConfig{
				URL: w.server.URL,
				Key: w.server.Key,
				Now: func() time.Time { return time.Now().Add(-age) },
			})
			w.must(err)
			w.wantError(x.Sleep(t.Context(), h), sandbox.Unavailable, "")
		})
	}
	w.Run("another key", func(t *testing.T) {
		w := w.with(t)
		x, err := cloudflare.NewWorker(cloudflare.WorkerConfig{URL: w.server.URL, Key: "another"})
		w.must(err)
		_, err = x.Instance(t.Context())
		w.wantError(err, sandbox.Unavailable, "")
	})
}

func setBody(r *http.Request, body string) {
	r.Body, r.ContentLength = io.NopCloser(strings.NewReader(body)), int64(len(body))
}

func echo(t *testing.T) sandbox.ExecRequest {
	t.Helper()
	r, err := sandbox.ExecRequest{Command: []string{"echo"}}.Normalize()
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// TestWithoutKey: a Worker that was deployed without a key refuses all requests.
func TestWithoutKey(t *testing.T) {
	server := cloudflaretest.Start(t, cloudflaretest.Config{NoKey: true})
	w := &world{t, server, server.Worker()}
	_, err := w.worker.Instance(t.Context())
	w.wantError(err, sandbox.Unavailable, "")
	w.wantError(w.worker.Spawn(t.Context(), w.spec(), cloudflare.Limits{}), sandbox.Unavailable, "")
}
