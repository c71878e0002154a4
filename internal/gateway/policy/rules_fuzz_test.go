package policy_test

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/gateway/policy"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// FuzzRules compares a compiled policy with one that reads all rules for every question.
func FuzzRules(f *testing.F) {
	for _, rules := range []string{
		`{"allow":[{"host":"github.com"}]}`, `{"allow":[{"host":"*.github.com","ports":[22]},{"host":"api.github.com"}]}`,
		`{"allow":[{"host":"*.com"},{"host":"*.b.com","ports":[1]},{"host":"a.b.com","ports":[65535]}]}`,
		`{"allow":[{"host":"GitHub.com"},{"host":"*"}],"private_cidrs":["10.0.0.0/8"]}`,
	} {
		for _, host := range []string{"github.com", "a.b.com", ".com", "com", "xgithub.com", "a.api.github.com"} {
			f.Add(rules, host, uint16(443))
		}
	}
	f.Fuzz(func(t *testing.T, rules, asked string, port uint16) {
		var e sandbox.Egress
		if json.Unmarshal([]byte(rules), &e) != nil {
			return
		}
		p, err := policy.Compile(e)
		if err != nil {
			if sandbox.CodeOf(err) != sandbox.Invalid {
				t.Fatalf("error without a code: %v", err)
			}
			return
		}
		host, err := sandbox.CanonicalHost(asked)
		if err != nil {
			return
		}
		if got, want := p.Host(host, port) == nil, slowVerdict(e, host, port); got != want {
			t.Errorf("%s:%d is allowed: %t, want %t", host, port, got, want)
		}
	})
}

// slowVerdict follows the documentation: the most specific rule for a name decides.
func slowVerdict(e sandbox.Egress, host string, port uint16) bool {
	best, ports := -1, []int(nil)
	for _, r := range e.Allow {
		rule := strings.ToLower(r.Host)
		rank := -1
		if suffix, wild := strings.CutPrefix(rule, "*"); !wild && rule == host {
			rank = 1000
		} else if wild && strings.HasSuffix(host, suffix) && len(host) > len(suffix) {
			rank = len(suffix)
		}
		if rank > best {
			best, ports = rank, r.Ports
		}
	}
	if best < 0 {
		return false
	}
	if len(ports) == 0 {
		ports = sandbox.DefaultEgressPorts
	}
	return slices.Contains(ports, int(port))
}
