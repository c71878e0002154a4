package docker_test

import (
	"context"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/driver"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/executor/docker/dockertest"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/executor/faulttest"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/testwait"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// TestTheCodeOfASandboxStopsWhileItsEngineHangs kills sandboxes whose code ticks. Meanwhile the engine hangs on
// removals, or also on lists, or the relay hangs too.
func TestTheCodeOfASandboxStopsWhileItsEngineHangs(t *testing.T) {
	t.Parallel()
	const endsIn = 2 * time.Second
	removal := func(r *http.Request) bool { return r.Method == http.MethodDelete }
	removalAndList := func(r *http.Request) bool {
		return removal(r) || strings.HasSuffix(r.URL.Path, "/containers/json")
	}
	for name, row := range map[string]struct {
		hangs func(*http.Request) bool
		also  func(t *testing.T, w *world) (heal func())
	}{
		"removals":                                   {removal, nil},
		"removals and lists":                         {removalAndList, nil},
		"removals, lists and a stopped relay":        {removalAndList, haltRelay},
		"removals and a stopped relay":               {removal, haltRelay},
		"removals, lists and a relay that is paused": {removalAndList, pauseRelay},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			proxy := dockertest.NewProxy(t)
			w := newWorldOf(t, newExecutorOn(t, proxy.Host()), dockertest.Busybox(t), func(*sandbox.EnvironmentSpec) {})
			h := w.spawn(t)
			w.exec(t, h, "sh", "-c", "cd /workspace; : > ticks; (while :; do echo >> ticks; sleep 0.02; done) > /dev/null 2>&1 &")
			ticked := tickerOf(t, h)
			ticked(t, time.Second)
			if row.also != nil {
				defer row.also(t, w)()
			}
			healed := make(chan struct{})
			hung := faulttest.Hung(healed)
			proxy.Set(func(rw http.ResponseWriter, r *http.Request, pass http.HandlerFunc) {
				if row.hangs(r) {
					hung(rw, r, pass)
				}
				pass(rw, r)
			})
			defer func() {
				proxy.Set(nil)
				close(healed)
			}()
			ctx, cancel := context.WithCancel(t.Context())
			killed := make(chan error, 1)
			began := time.Now()
			go func() { killed <- w.x.Kill(ctx, h) }()
			last := ticked(t, 2*endsIn)
			cancel()
			if err := <-killed; err == nil {
				t.Error("the kill succeeded, so the engine did not hang")
			}
			if ran := last.Sub(began); ran > endsIn {
				t.Errorf("the code ran for %s after the kill", ran.Round(time.Millisecond))
			} else {
				t.Logf("the code ran for %s after the kill", ran.Round(time.Millisecond))
			}
		})
	}
}

// tickerOf returns a function that watches for a time how a sandbox's code appends to a file. It returns the time of
// the last append.
func tickerOf(t *testing.T, h driver.Handle) func(t *testing.T, during time.Duration) (last time.Time) {
	t.Helper()
	c, err := dockertest.Engine(t).ContainerInspect(t.Context(), name(h))
	must(t, err)
	var ticks string
	for _, m := range c.Mounts {
		if m.Destination == "/workspace" {
			ticks = filepath.Join(m.Source, "ticks")
		}
	}
	return func(t *testing.T, during time.Duration) (last time.Time) {
		t.Helper()
		size := int64(-1)
		testwait.Poll(during, func() bool {
			info, err := os.Stat(ticks)
			if err != nil {
				t.Fatalf("the sandbox's code does not tick: %v", err)
			}
			if info.Size() != size {
				size, last = info.Size(), time.Now()
			}
			return false
		})
		return last
	}
}

// haltRelay stops the process of a relay.
func haltRelay(t *testing.T, w *world) (heal func()) {
	t.Helper()
	stopRelay(t, w)
	c, err := dockertest.Engine(t).ContainerInspect(t.Context(), relayName(w))
	must(t, err)
	return func() {
		for _, pid := range dockertest.Processes(t, c.ID, "relay", "serve") {
			must(t, syscall.Kill(pid, syscall.SIGCONT))
		}
	}
}

func pauseRelay(t *testing.T, w *world) (heal func()) {
	t.Helper()
	must(t, dockertest.Engine(t).ContainerPause(t.Context(), relayName(w)))
	return func() {
		must(t, dockertest.Engine(t).ContainerUnpause(context.WithoutCancel(t.Context()), relayName(w)))
	}
}
