package plansummary

import (
	"fmt"
	"strings"

	tfjson "github.com/hashicorp/terraform-json"

	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// If at least folded leases of one environment ended alike, one row stands for all of them and names the first named.
const (
	folded = 4
	named  = 3
)

// alike are objects that ended in the same way and have the same next action.
type alike struct {
	environment, by, next string
	all                   []*tfjson.ResourceChange
}

// ends lists what ended by the rules, the number of ended leases and their cost.
func ends(ended, planned []*tfjson.ResourceChange) string {
	if len(ended) == 0 {
		return ""
	}
	actions := make(map[string]string, len(planned))
	for _, c := range planned {
		actions[c.Address] = action(c.Change.Actions)
	}
	var groups []*alike
	of := map[[3]string]*alike{}
	leases, cost := 0, sandbox.NanoUSD(0)
	for _, c := range ended {
		next, ok := actions[c.Address]
		if !ok {
			next = action(tfjson.Actions{tfjson.ActionNoop})
		}
		by, environment := shown(c.Change.After, c.Change.AfterSensitive, "ended_by"), c.Address // its own group
		if c.Type == "sandbox_lease" {
			leases, cost = leases+1, cost+costOf(c.Change.After)
			environment = shown(c.Change.After, c.Change.AfterSensitive, "environment_id")
		}
		key := [3]string{environment, by, next}
		if of[key] == nil {
			of[key] = &alike{environment: environment, by: by, next: next}
			groups = append(groups, of[key])
		}
		of[key].all = append(of[key].all, c)
	}
	said := "### Ended\n\nBy the rules, which is not drift."
	if leases > 0 {
		noun := "leases"
		if leases == 1 {
			noun = "lease"
		}
		said += fmt.Sprintf(" %d %s ended and cost %s.", leases, noun, dollars(cost))
	}
	said += "\n\n| object | ended by | reason | next |\n|---|---|---|---|\n"
	for _, g := range groups {
		said += g.rows()
	}
	return said
}

// rows returns one row for each object, or one row for all if there are many.
func (g *alike) rows() string {
	row := func(object string, c *tfjson.ResourceChange) string {
		return fmt.Sprintf("| %s | %s | %s | %s |\n", object, g.by,
			shown(c.Change.After, c.Change.AfterSensitive, "end_reason"), g.next)
	}
	if len(g.all) >= folded {
		var names []string
		for _, c := range g.all[:named] {
			names = append(names, code(c.Address))
		}
		return row(fmt.Sprintf("%d leases of %s: %s and %d more", len(g.all), g.environment, strings.Join(names, ", "),
			len(g.all)-named), g.all[0])
	}
	rows := ""
	for _, c := range g.all {
		rows += row(code(c.Address), c)
	}
	return rows
}

// costOf returns the cost of a lease, or zero if the state has none.
func costOf(object any) sandbox.NanoUSD {
	var n sandbox.NanoUSD
	if text, ok := attribute(object, "cost_usd").(string); !ok || n.UnmarshalText([]byte(text)) != nil {
		return 0
	}
	return n
}
