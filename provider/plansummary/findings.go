package plansummary

import (
	"fmt"
	"slices"

	tfjson "github.com/hashicorp/terraform-json"
)

// findings lists once each the open findings that the plan's sandbox_drift data sources have read.
func findings(plan *tfjson.Plan) string {
	if plan.PriorState == nil || plan.PriorState.Values == nil {
		return ""
	}
	rows, seen := "", map[string]bool{}
	for _, read := range data(plan.PriorState.Values.RootModule, "sandbox_drift") {
		list, _ := read.AttributeValues["findings"].([]any)
		for _, f := range list {
			id := fmt.Sprint(attribute(f, "id"))
			if seen[id] || attribute(f, "resolved_at") != nil {
				continue
			}
			seen[id] = true
			rows += finding(f)
		}
	}
	if rows == "" {
		return ""
	}
	return "### Open findings of drift\n\n| object | kind | expected | observed | first seen |\n" +
		"|---|---|---|---|---|\n" + rows
}

func finding(f any) string {
	kind := shown(f, nil, "kind")
	if attribute(f, "field") != nil {
		kind += " " + shown(f, nil, "field")
	}
	return fmt.Sprintf("| %s | %s | %s | %s | %s |\n",
		subject(f), kind, shown(f, nil, "expected"), shown(f, nil, "observed"), shown(f, nil, "first_seen_at"))
}

// subject returns the most specific id in a finding. Findings about usage have no lease and no sandbox; some concern
// several environments of an instance.
func subject(f any) string {
	for _, name := range []string{"lease_id", "sandbox_id", "environment_id"} {
		if attribute(f, name) != nil {
			return shown(f, nil, name)
		}
	}
	return shown(f, nil, "instance")
}

// data returns the data sources of a type that a module and its descendants have read.
func data(m *tfjson.StateModule, kind string) []*tfjson.StateResource {
	if m == nil {
		return nil
	}
	var found []*tfjson.StateResource
	for _, r := range m.Resources {
		if r.Mode == tfjson.DataResourceMode && r.Type == kind && fromUs(r.ProviderName) {
			found = append(found, r)
		}
	}
	for _, child := range m.ChildModules {
		found = slices.Concat(found, data(child, kind))
	}
	return found
}
