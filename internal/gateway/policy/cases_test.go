package policy_test

import (
	"encoding/json"
	"os"
	"testing"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/gateway/policy"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// TestTheCasesThatEveryBackendShares: the Worker of environments on Cloudflare passes the same cases.
func TestTheCasesThatEveryBackendShares(t *testing.T) {
	t.Parallel()
	b, err := os.ReadFile("testdata/hosts.json")
	if err != nil {
		t.Fatal(err)
	}
	var shared struct {
		sandbox.Egress
		Cases []struct {
			Host   string
			Port   uint16
			Reason policy.Reason
		}
	}
	if err := json.Unmarshal(b, &shared); err != nil || len(shared.Cases) == 0 {
		t.Fatalf("%d cases: %v", len(shared.Cases), err)
	}
	p := compile(t, shared.Egress)
	for _, c := range shared.Cases {
		got := policy.InvalidHost
		if name, err := sandbox.CanonicalHost(c.Host); err == nil {
			got = reasonOf(p.Host(name, c.Port))
		}
		if got != c.Reason {
			t.Errorf("%q port %d: %q, want %q", c.Host, c.Port, got, c.Reason)
		}
	}
}
