package audit

import (
	"os"
	"slices"
	"strings"
	"testing"
)

// TestTheSecurityGuideStatesEachWaiver compares the guide with the rules from which gateways and relays are exempt, and
// with the rules that replace them.
func TestTheSecurityGuideStatesEachWaiver(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("../../../../templates/guides/security.md")
	if err != nil {
		t.Fatal(err)
	}
	rows := map[string]string{} // by the rule or control that a row begins with
	for line := range strings.Lines(string(text)) {
		cell, rest, found := strings.Cut(strings.TrimPrefix(line, "| "), " ")
		if found && strings.HasPrefix(line, "| ") {
			rows[cell] = rest
		}
	}
	for objects, exempt := range map[string][]string{"for gateways": notOfGateways, "for relays": notOfRelays} {
		waived := func(number string) bool {
			_, waiver, found := strings.Cut(rows[number], "*Waived* for ")
			return found && strings.Contains("for "+waiver, objects)
		}
		for _, r := range containerRules {
			if !strings.HasPrefix(r.number, "4.") && !strings.HasPrefix(r.number, "5.") {
				continue // our own: the guide names the rules that replace them
			}
			if want := slices.Contains(exempt, r.number); waived(r.number) != want {
				t.Errorf("%s: a waiver %s: %t in the guide, %t in the audit", r.number, objects, !want, want)
			}
		}
	}
	for _, rules := range [][]rule{gatewayRules, relayRules} {
		for _, r := range rules {
			if own := strings.HasPrefix(r.number, "G.") || strings.HasPrefix(r.number, "R."); own && rows[r.number] == "" {
				t.Errorf("the guide has no row of rule %s (%s)", r.number, r.title)
			}
		}
	}
}
