package cloudflare_test

import (
	"bytes"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/executor/cloudflare"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/executor/cloudflare/cloudflaretest"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/sandbox"
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
	x, err := cloudflare.NewWorker(cloudflare.WorkerConfig{URL: w.server.URL, Key: w.server.Key, HTTP: &http.Client{Transport: f}})
	w.must(err)
	return x
}

// testSignature: every request that is not exactly what the key's owner signed, just now, does nothing.
func testSignature(w *world) {
	h := w.spawn(cloudflare.Limits{})
	other := w.spawn(cloudflare.Limits{})
	for name, f := range map[string]tamper{
		"no signature":    func(r *http.Request) { r.Header.Del("X-Sandbox-Signature") },
		"another one":     func(r *http.Request) { r.Header.Set("X-Sandbox-Signature", strings.Repeat("0", 64)) },
		"another method":  func(r *http.Request) { r.Method = http.MethodDelete },
		"another sandbox": func(r *http.Request) { r.URL.Path = strings.Replace(r.URL.Path, h.SandboxID, other.SandboxID, 1) },
		"another verb":    func(r *http.Request) { r.URL.Path = strings.Replace(r.URL.Path, "/sleep", "/wake", 1) },
		"a query":         func(r *http.Request) { r.URL.RawQuery = "x=1" },
		"another time":    func(r *http.Request) { r.Header.Set("X-Sandbox-Time", "1700000000000") },
		"another body":    func(r *http.Request) { setBody(r, `{"x":1}`) },
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
				t.Errorf("it was obeyed: %+v", s)
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
	w.Run("another command", func(t *testing.T) {
		w := w.with(t)
		x := w.tampered(func(r *http.Request) { r.Body = io.NopCloser(&replacer{r.Body, "echo", "true"}) })
		r, err := sandbox.ExecRequest{Command: []string{"echo"}}.Normalize()
		w.must(err)
		_, err = x.Exec(t.Context(), h, r)
		w.wantError(err, sandbox.Unavailable, "")
	})
	for name, age := range map[string]time.Duration{"too old": 2 * time.Minute, "not yet": -2 * time.Minute} {
		w.Run(name, func(t *testing.T) {
			w := w.with(t)
			x, err := cloudflare.NewWorker(cloudflare.WorkerConfig{URL: w.server.URL, Key: w.server.Key, Now: func() time.Time { return time.Now().Add(-age) }})
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

// replacer replaces a word in what is read by one as long.
type replacer struct {
	io.Reader
	old, new string
}

func (r *replacer) Read(p []byte) (int, error) {
	n, err := r.Reader.Read(p)
	copy(p, bytes.ReplaceAll(p[:n], []byte(r.old), []byte(r.new)))
	return n, err
}

// TestWithoutKey: a Worker that was deployed without a key answers nobody.
func TestWithoutKey(t *testing.T) {
	server := cloudflaretest.Start(t, cloudflaretest.Config{NoKey: true})
	w := &world{t, server, server.Worker()}
	_, err := w.worker.Instance(t.Context())
	w.wantError(err, sandbox.Unavailable, "")
	w.wantError(w.worker.Spawn(t.Context(), w.spec(), cloudflare.Limits{}), sandbox.Unavailable, "")
}
