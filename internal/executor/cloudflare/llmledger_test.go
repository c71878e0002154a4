package cloudflare_test

import (
	"fmt"
	"math/rand/v2"
	"os"
	"strings"
	"testing"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/testwait"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// withModels gives an environment a route of each API.
func withModels(p *sandbox.PutEnvironment) {
	p.SecretValues = map[string]sandbox.Secret{"KEY": secretKey}
	p.LLM = map[string]sandbox.LLMRoute{
		"main": keyed(sandbox.LLMOpenAI).LLMRoute, "claude": keyed(sandbox.LLMAnthropic).LLMRoute,
		"router": keyed(sandbox.LLMOpenRouter).LLMRoute,
	}
}

// recorded waits until the ledger has count ended calls, and returns them by id.
func (h *house) recorded(count int) map[string]sandbox.LLMCall {
	h.Helper()
	var ended map[string]sandbox.LLMCall
	testwait.NoError(h, patience, "the ledger has the calls", func() error {
		list, err := h.service.ListLLMCalls(h.Context(), sandbox.LLMCallQuery{Limit: 1000})
		if err != nil {
			h.Fatal(err)
		}
		ended = map[string]sandbox.LLMCall{}
		for _, c := range list {
			if c.Outcome != sandbox.LLMRunning {
				ended[c.ID] = c
			}
		}
		if len(ended) < count {
			return fmt.Errorf("it has %d calls, want %d that have ended: %+v", len(list), count, list)
		}
		return nil
	})
	return ended
}

// TestTheLedgerHasWhatAnUpstreamCountsForSandboxesOnCloudflare makes random calls, some while no reconciler runs, and
// one that breaks off with its environment.
func TestTheLedgerHasWhatAnUpstreamCountsForSandboxesOnCloudflare(t *testing.T) {
	t.Parallel()
	u := newUpstream(t)
	h := newHouseWith(t, u.host(t))
	t.Cleanup(u.CloseClientConnections)
	h.environment("rpg-4", withModels)
	ref := h.acquire("rpg-4")
	random := rand.New(rand.NewPCG(1, 2))
	apis := []string{"openai", "responses", "anthropic", "openrouter"}
	call := func() string {
		x := wish{Input: 1 + random.Int64N(50), Output: 1 + random.Int64N(100), Events: random.Int64N(20), Break: -1, Stall: -1}
		switch random.IntN(5) {
		case 0:
			x.Status = []int64{400, 429, 500, 529}[random.IntN(4)]
		case 1:
			x.Break, x.Events = 1, 1+x.Events
		}
		return "(" + callCommand(apis[random.IntN(len(apis))], body(random.IntN(2) == 0, x)) + ") >/dev/null\n"
	}
	var script strings.Builder
	for range 30 {
		script.WriteString(call())
	}
	h.sh(ref, script.String())
	h.wantCounted(u, 30)

	// The first call stalls until the reconciler has ended.
	stalls := plainly()
	stalls.Stall = 1
	script.Reset()
	script.WriteString("(" + callCommand("openai", body(true, stalls)) + ") >/dev/null\n")
	for range 5 {
		script.WriteString(call())
	}
	h.sh(ref, fmt.Sprintf("(%s) </dev/null >/dev/null 2>&1 &", script.String()))
	<-u.stalled
	h.end()
	close(u.release)
	testwait.NoError(t, patience, "without a reconciler, the upstream gets all calls", func() error {
		if n := len(u.got()); n < 36 {
			return fmt.Errorf("it got %d of 36", n)
		}
		return nil
	})
	h.start()
	h.wantCounted(u, 36)
	if said := h.sh(ref, "env; ls /run/secrets; cat /run/secrets/* /proc/1/environ /workspace/config.json 2>&1"); strings.Contains(
		said, secretKey) || strings.Contains(said, "KEY\n") {
		t.Errorf("the sandbox has the key: %s", said)
	}
	if log, err := os.ReadFile(h.log.Name()); err != nil || strings.Contains(string(log), secretKey) {
		t.Errorf("the log has the key, or cannot be read: %v", err)
	}
	h.endsWithItsCalls(u, ref)
}

// wantCounted compares the ledger with the upstream's counts.
func (h *house) wantCounted(u *upstream, count int) {
	h.Helper()
	ended := h.recorded(count)
	seen := u.got()
	if len(ended) != count || len(seen) != count {
		h.Fatalf("the ledger has %d calls, and the upstream got %d, want %d", len(ended), len(seen), count)
	}
	var use sandbox.LLMUse
	for _, s := range seen {
		c, ok := ended[s.header.Get("X-Sandbox-Call")]
		tokens, cost := exact(wish{Input: s.input, Output: s.output})
		outcome := sandbox.LLMCompleted
		if s.status != 0 {
			tokens, cost, outcome = sandbox.LLMTokens{}, 0, sandbox.LLMRejected
		}
		use = use.Plus(c.Use())
		unknown := c.Unknown && c.Cost >= cost && c.Outcome != sandbox.LLMRejected
		counted := c.Outcome == outcome && c.Tokens == tokens && c.Cost == cost && !c.Unknown
		if !ok || c.EnvironmentID != "rpg-4" || s.broke && s.status == 0 && !unknown || (!s.broke || s.status != 0) && !counted {
			h.Errorf("the upstream counted %+v %s (it broke off: %t), the ledger has %+v", tokens, cost, s.broke, c)
		}
	}
	leases, err := h.service.ListLeases(h.Context(), sandbox.LeaseFilter{EnvironmentID: "rpg-4"})
	if err != nil || len(leases) != 1 || leases[0].LLM != use {
		h.Errorf("the leases have %+v, %v; want %+v", leases, err, use)
	}
}

// endsWithItsCalls: the ledger has a call that runs while its environment is destroyed.
func (h *house) endsWithItsCalls(u *upstream, ref sandbox.LeaseRef) {
	h.Helper()
	hangs := plainly()
	hangs.Stall, hangs.Hang = 1, true
	h.sh(ref, fmt.Sprintf("(%s) </dev/null >/dev/null 2>&1 &", callCommand("openai", body(true, hangs))))
	<-u.stalled
	if err := h.service.DeleteEnvironment(h.Context(), sandbox.DeleteEnvironment{ID: "rpg-4", Force: true}); err != nil {
		h.Fatal(err)
	}
	var unknown []sandbox.LLMCall
	ended := h.recorded(37)
	for _, s := range u.got()[36:] {
		unknown = append(unknown, ended[s.header.Get("X-Sandbox-Call")])
	}
	if len(unknown) != 1 || unknown[0].Outcome != sandbox.LLMInterrupted || !unknown[0].Unknown || unknown[0].Cost == 0 {
		h.Errorf("the last call is %+v", unknown)
	}
}
