package reconciler_test

import (
	"context"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/executor/docker/dockertest"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/executor/faulttest"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/ledger/postgrestest"
	"github.com/sandbox-lease/terraform-provider-sandbox/reconciler"
)

// probes are the endpoints that monitoring polls.
var probes = []string{"/livez", "/readyz", "/metrics"}

// probed returns the status of a probe, and fails unless it answers within a second.
func (w *world) probed(path string) int {
	w.Helper()
	ctx, cancel := context.WithTimeout(w.Context(), 30*time.Second)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, w.url+path, nil)
	if err != nil {
		w.Fatal(err)
	}
	r.Header.Set("Authorization", "Bearer "+w.token)
	began := time.Now()
	res, err := http.DefaultClient.Do(r)
	if took := time.Since(began); took > time.Second {
		w.Errorf("%s was answered after %s, want 1s", path, took)
	}
	if err != nil {
		w.Errorf("%s: %v", path, err)
		return 0
	}
	_ = res.Body.Close()
	return res.StatusCode
}

// TestProbesAreAnsweredWhileTheEngineHangs cuts the stream of events, and then holds back all answers of the engine.
func TestProbesAreAnsweredWhileTheEngineHangs(t *testing.T) {
	t.Parallel()
	proxy := dockertest.NewProxy(t)
	streams, cut := context.WithCancel(t.Context())
	proxy.Set(func(w http.ResponseWriter, r *http.Request, pass http.HandlerFunc) {
		if !strings.HasSuffix(r.URL.Path, "/events") {
			pass(w, r)
			return
		}
		ctx, cancel := context.WithCancel(r.Context())
		defer cancel()
		defer context.AfterFunc(streams, cancel)()
		pass(w, r.WithContext(ctx))
		panic(http.ErrAbortHandler)
	})
	w := newWorld(t, proxy.Host())
	w.environment("catan", rpg)
	w.acquire(agent(0), "catan")
	healed := make(chan struct{})
	var hung atomic.Int64
	proxy.Set(counted(&hung, faulttest.Hung(healed)))
	cut()
	answered := func() {
		for _, path := range probes {
			if code := w.probed(path); code != http.StatusOK {
				t.Errorf("%s is answered with %d", path, code)
			}
		}
	}
	w.eventually("the loop connects again, and waits", func() bool {
		answered()
		return hung.Load() > 0
	})
	for range 30 {
		answered()
	}
	close(healed)
	proxy.Set(nil)
}

// TestProbesAreAnsweredWhileTheDatabaseHangs holds back all answers of the database.
func TestProbesAreAnsweredWhileTheDatabaseHangs(t *testing.T) {
	t.Parallel()
	server := postgrestest.Start(t)
	proxy := postgrestest.NewProxy(t, server)
	w := newWorld(t, "", func(c *reconciler.Config) { c.LedgerURL = proxy.Through(t, server.URL(t)) })
	if code := w.probed("/readyz"); code != http.StatusOK {
		t.Fatalf("/readyz is answered with %d before anything hangs", code)
	}
	time.Sleep(time.Second)           //nolint:forbidigo // the answer above is cached for that long
	proxy.SetLatency(5 * time.Second) // affects new connections
	proxy.Strand()
	for range 3 {
		for path, want := range map[string]int{
			"/livez":   http.StatusOK,
			"/readyz":  http.StatusServiceUnavailable,
			"/metrics": http.StatusOK,
		} {
			if code := w.probed(path); code != want {
				t.Errorf("%s is answered with %d, want %d", path, code, want)
			}
		}
	}
	proxy.SetLatency(0)
	proxy.Cut()
	w.eventually("it is ready again", func() bool { return w.probed("/readyz") == http.StatusOK })
}
