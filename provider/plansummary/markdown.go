package plansummary

import (
	"fmt"
	"slices"
	"strings"

	tfjson "github.com/hashicorp/terraform-json"

	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// summary has one table each for costs, drift, open findings, what ended by the rules, and planned changes. A table
// without rows is "".
type summary struct {
	costs, drift, findings, ends, changes string
}

func summarize(plan *tfjson.Plan) summary {
	planned := ours(plan.ResourceChanges)
	drifted, ended := tellApart(ours(plan.ResourceDrift))
	next := nextOf(planned)
	return summary{
		costs: costs(planned), drift: drift(drifted, next), findings: findings(plan), ends: ends(ended, next),
		changes: changes(planned),
	}
}

// drifted reports whether anything differs from the ledger, whatever is planned for it.
func (s summary) drifted() bool { return s.drift != "" || s.findings != "" }

// String returns the summary as Markdown.
func (s summary) String() string {
	text := "## Sandboxes in this plan\n"
	for _, table := range []string{s.costs, s.drift, s.findings, s.ends, s.changes} {
		if table != "" {
			text += "\n" + table
		}
	}
	if s == (summary{}) {
		text += "\nNo changes, and no drift.\n"
	}
	return text
}

// ours returns the changes of this provider's resources, whichever registry it came from.
func ours(all []*tfjson.ResourceChange) []*tfjson.ResourceChange {
	var found []*tfjson.ResourceChange
	for _, c := range all {
		if c.Mode == tfjson.ManagedResourceMode && c.Change != nil && fromUs(c.ProviderName) {
			found = append(found, c)
		}
	}
	return found
}

func fromUs(provider string) bool { return strings.HasSuffix(provider, "/sandbox-lease/sandbox") }

// tellApart splits the changes that Terraform saw into drift and expected ends.
func tellApart(seen []*tfjson.ResourceChange) (drifted, ended []*tfjson.ResourceChange) {
	for _, c := range seen {
		by, _ := attribute(c.Change.After, "ended_by").(string)
		if sandbox.EndedBy(by).EndedByRules() { // for an environment, ended_by is the condition
			ended = append(ended, c)
		} else {
			drifted = append(drifted, c)
		}
	}
	return drifted, ended
}

func drift(drifted []*tfjson.ResourceChange, next next) string {
	if len(drifted) == 0 {
		return ""
	}
	var rows []row
	for _, c := range drifted {
		found := "vanished"
		if !c.Change.Actions.Delete() {
			found = strings.Join(differences(c.Change), "<br>")
		}
		rows = append(rows, ofType(c, found+" | "+next.of(c.Address)))
	}
	return "### Drift\n\n| object | what was found | next |\n|---|---|---|\n" + fold(rows)
}

func changes(planned []*tfjson.ResourceChange) string {
	var rows []row
	for _, c := range planned {
		if !c.Change.Actions.NoOp() {
			rows = append(rows, ofType(c, action(c.Change.Actions)))
		}
	}
	if len(rows) == 0 {
		return ""
	}
	return "### Changes\n\n| object | action |\n|---|---|\n" + fold(rows)
}

// next has the planned action of each object by address.
type next map[string]string

func nextOf(planned []*tfjson.ResourceChange) next {
	n := make(next, len(planned))
	for _, c := range planned {
		n[c.Address] = action(c.Change.Actions)
	}
	return n
}

func (n next) of(address string) string {
	if planned, ok := n[address]; ok {
		return planned
	}
	return action(tfjson.Actions{tfjson.ActionNoop})
}

func action(a tfjson.Actions) string {
	switch {
	case a.NoOp():
		return "nothing is planned"
	case a.Replace():
		return "replace"
	default:
		var words []string
		for _, word := range a {
			words = append(words, string(word))
		}
		return strings.Join(words, ", ")
	}
}

// differences returns the attributes that differ, by name.
func differences(c *tfjson.Change) []string {
	before, _ := c.Before.(map[string]any)
	after, _ := c.After.(map[string]any)
	var found []string
	for name := range after {
		if fmt.Sprint(before[name]) != fmt.Sprint(after[name]) {
			found = append(found, fmt.Sprintf("%s: expected %s, observed %s",
				code(name), shown(c.Before, c.BeforeSensitive, name), shown(c.After, c.AfterSensitive, name)))
		}
	}
	slices.Sort(found)
	return found
}

// shown returns an attribute's value if it is a single value and not sensitive.
func shown(object, sensitive any, name string) string {
	if attribute(sensitive, name) == true {
		return "(sensitive)"
	}
	switch v := attribute(object, name).(type) {
	case nil:
		return "none"
	case map[string]any, []any: // parts may be sensitive
		return "(several values)"
	default:
		return code(fmt.Sprint(v))
	}
}

func attribute(object any, name string) any {
	m, _ := object.(map[string]any)
	return m[name]
}

// code returns text as inline code, so that a game server's reason for an end cannot create a link, mention or table.
func code(s string) string {
	s = strings.Join(strings.Fields(s), " ")
	return "`" + strings.NewReplacer("`", "'", "|", `\|`).Replace(s) + "`"
}
