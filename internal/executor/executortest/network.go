package executortest

import (
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/driver"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

func testNetwork(t *testing.T, cfg Config) {
	w := newWorld(t, cfg)
	for name, test := range map[string]func(*testing.T, *world){
		"none is loopback alone":                       noNetwork,
		"a full network is not another sandbox's":      fullNetworksApart,
		"a full network outlives sleep, and is killed": fullNetworkLives,
		"eight racing spawns make one full network":    fullNetworkRacing,
	} {
		t.Run(name, func(t *testing.T) { t.Parallel(); test(t, w) })
	}
}

func full(s *driver.SandboxSpec) { s.Network = sandbox.NetworkFull }

func (w *world) needFull(t *testing.T) {
	t.Helper()
	w.needBackend(t)
	if !w.x.Capabilities().FullNetwork {
		t.Skip("the backend gives no sandbox a network of its own")
	}
}

// address returns the address of a sandbox on its network, "" if it has none.
func (w *world) address(t *testing.T, h driver.Handle) string {
	t.Helper()
	return strings.TrimSpace(
		w.sh(t, h, "ip -4 -o addr show scope global | tr -s ' ' | cut -d' ' -f4 | cut -d/ -f1").stdout())
}

func noNetwork(t *testing.T, w *world) {
	w.needExec(t)
	w.needBackend(t)
	h := w.spawn(t)
	w.wantOutput(t, h, "ls /sys/class/net; ip route; ip -6 route | grep -v ' lo '", "lo\n")
}

// fullNetworksApart: each sandbox listens and reaches itself. Neither reaches the other.
func fullNetworksApart(t *testing.T, w *world) {
	w.needExec(t)
	w.needFull(t)
	a, b := w.spawn(t, full), w.spawn(t, full)
	for _, h := range []driver.Handle{a, b} {
		w.sh(t, h, "(while true; do echo heard | nc -l -p 7001; done) >/dev/null 2>&1 &")
		call := fmt.Sprintf("for i in 1 2 3 4 5 6 7 8 9; do nc -w 3 %s 7001 </dev/null && break; sleep 0.2; done",
			w.address(t, h))
		w.wantOutput(t, h, call, "heard\n")
	}
	// Engines may leave gaps while they create other networks (docs/guides/security.md). Each gap lasts for one call of
	// iptables. A path that is really open is open at each attempt, for seconds.
	for from, to := range map[driver.Handle]driver.Handle{a: b, b: a} {
		w.wantOutput(t, from, fmt.Sprintf("for i in 1 2 3 4 5 6 7 8; do nc -w 2 %s 7001 </dev/null 2>/dev/null | grep -q "+
			"heard || { echo closed; break; }; sleep 0.5; done",
			w.address(t, to)), "closed\n")
	}
	w.wantOutput(t, a, "ip -6 -o addr | grep -vE ' (::1|fe80:)'; ip -6 route | grep default; true", "")
}

func fullNetworkLives(t *testing.T, w *world) {
	w.needFull(t)
	h := w.spawn(t, full)
	for _, mode := range w.sleepModes() {
		must(t, w.x.Sleep(t.Context(), h, mode))
		wake(t, w.x, h)
		w.wantState(t, h, sandbox.StateRunning)
		if w.x.Capabilities().Exec && w.address(t, h) == "" {
			t.Errorf("after sleep by %s it has no address", mode)
		}
	}
	must(t, w.x.Kill(t.Context(), h))
	if left := w.owned(t, h); len(left) > 0 {
		t.Errorf("left over: %+v", left)
	}
}

func fullNetworkRacing(t *testing.T, w *world) {
	w.needFull(t)
	spec := w.spec()
	full(&spec)
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			if err := w.x.Spawn(t.Context(), spec); err != nil {
				t.Errorf("spawn: %v", err)
			}
		})
	}
	all.Wait()
	w.wantState(t, spec.Handle, sandbox.StateRunning)
	must(t, w.x.Kill(t.Context(), spec.Handle))
	if left := w.owned(t, spec.Handle); len(left) > 0 {
		t.Errorf("left over: %+v", left)
	}
}
