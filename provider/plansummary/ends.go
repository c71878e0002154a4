package plansummary

import (
	"fmt"

	tfjson "github.com/hashicorp/terraform-json"

	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// ends lists what ended by the rules, the number of ended leases and their cost.
func ends(ended []*tfjson.ResourceChange, next next) string {
	if len(ended) == 0 {
		return ""
	}
	var rows []row
	leases, cost := 0, sandbox.NanoUSD(0)
	for _, c := range ended {
		then := next.of(c.Address)
		by, alike, of := shown(c.Change.After, c.Change.AfterSensitive, "ended_by"), c.Address, ""
		if c.Type == "sandbox_lease" { // leases of an environment that ended alike, whatever the reason of each
			leases, cost = leases+1, cost+costOf(c.Change.After)
			environment := shown(c.Change.After, c.Change.AfterSensitive, "environment_id")
			alike, of = environment+" | "+by+" | "+then, "leases of "+environment
		}
		reason := shown(c.Change.After, c.Change.AfterSensitive, "end_reason")
		rows = append(rows, row{c, alike, of, by + " | " + reason + " | " + then})
	}
	said := "### Ended\n\nBy the rules, which is not drift."
	if leases > 0 {
		noun := "leases"
		if leases == 1 {
			noun = "lease"
		}
		said += fmt.Sprintf(" %d %s ended and cost %s.", leases, noun, dollars(cost))
	}
	return said + "\n\n| object | ended by | reason | next |\n|---|---|---|---|\n" + fold(rows)
}

// costOf returns the cost of a lease, or zero if the state has none.
func costOf(object any) sandbox.NanoUSD {
	var n sandbox.NanoUSD
	if text, ok := attribute(object, "cost_usd").(string); !ok || n.UnmarshalText([]byte(text)) != nil {
		return 0
	}
	return n
}
