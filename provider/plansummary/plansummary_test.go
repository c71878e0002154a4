package plansummary_test

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/sandbox-lease/terraform-provider-sandbox/provider/plansummary"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

func summarize(t *testing.T, plan string, args ...string) (string, error) {
	t.Helper()
	var out bytes.Buffer
	cmd := plansummary.NewCommand()
	cmd.SetArgs(append([]string{}, args...))
	cmd.SetIn(strings.NewReader(plan))
	cmd.SetOut(&out)
	err := cmd.ExecuteContext(t.Context())
	return out.String(), err
}

func plan(changes, drift string) string {
	return `{"format_version": "1.2", "resource_changes": [` + changes + `], "resource_drift": [` + drift + `]}`
}

func object(kind, name, change string) string {
	return `{"address": "` + kind + `.` + name + `", "mode": "managed", "type": "` + kind + `", "name": "` + name +
		`", "provider_name": "registry.terraform.io/sandbox-lease/sandbox", "change": ` + change + `}`
}

func TestCostsAreComparedAndSummed(t *testing.T) {
	t.Parallel()
	got, err := summarize(t, plan(
		object("sandbox_environment", "a", `{"actions": ["update"], "before": {"estimated_monthly_cost_usd": "10.00"}, "after": {"estimated_monthly_cost_usd": "7.50"}}`)+","+object("sandbox_environment",
			"b", `{"actions": ["create"], "before": null, "after": {"estimated_monthly_cost_usd": "15.61"}}`)+","+object(
			"sandbox_environment", "c",
			`{"actions": ["delete"], "before": {"estimated_monthly_cost_usd": "1.00"}, "after": null}`,
		)+","+object("sandbox_environment", "free",
			`{"actions": ["create"], "before": null, "after": {"estimated_monthly_cost_usd": null}}`), ""))
	want := `### Estimated cost of a month

| environment | before | after | difference |
|---|--:|--:|--:|
| ` + "`sandbox_environment.a`" + ` | $10.00 | $7.50 | -$2.50 |
| ` + "`sandbox_environment.b`" + ` | none | $15.61 | +$15.61 |
| ` + "`sandbox_environment.c`" + ` | $1.00 | none | -$1.00 |
| **total** | $11.00 | $23.11 | **+$12.11** |
`
	if err != nil || !strings.Contains(got, want) {
		t.Errorf("%v\n%s", err, got)
	}
}

func TestAnEstimateThatIsNotKnownYetIsNotCounted(t *testing.T) {
	t.Parallel()
	got, err := summarize(t, plan(object("sandbox_environment", "a",
		`{"actions": ["create"], "before": null, "after": {}, "after_unknown": {"estimated_monthly_cost_usd": true}}`), ""))
	if err != nil || !strings.Contains(got, "| none | known after apply |  |") ||
		!strings.Contains(got, "**not known yet**") {
		t.Errorf("%v\n%s", err, got)
	}
}

// A reason comes from a game server. It must not inject Markdown into a pull request.
func TestTextOfOthersStaysText(t *testing.T) {
	t.Parallel()
	got, err := summarize(t, plan("", object("sandbox_lease", "a",
		`{"actions": ["update"], "before": {}, "after": {"ended_by": "condition", "end_reason": "x | y\n`+"`"+
			`@everyone <b>"}}`)))
	if err != nil || !strings.Contains(got, "| `x \\| y '@everyone <b>` |") {
		t.Errorf("%v\n%s", err, got)
	}
}

// A hundred leases that ended with their game are one row, with their number and cost.
func TestManyEndsAreCounted(t *testing.T) {
	t.Parallel()
	var ended []string
	for i := range 100 {
		by := "condition"
		if i >= 98 {
			by = "ttl"
		}
		ended = append(ended, object("sandbox_lease", fmt.Sprintf("l%02d", i),
			`{"actions": ["update"], "before": {}, "after": {
			"environment_id": "catan-7", "ended_by": "`+by+`", "end_reason": "over", "cost_usd": "0.25"}}`))
	}
	ended = append(ended, object("sandbox_environment", "game",
		`{"actions": ["update"], "before": {}, "after": {"ended_by": "condition"}}`))
	got, err := summarize(t, plan("", strings.Join(ended, ",")))
	for _, line := range []string{
		"By the rules, which is not drift. 100 leases ended and cost $25.00.",
		"| 98 leases of `catan-7`: `sandbox_lease.l00`, `sandbox_lease.l01`, `sandbox_lease.l02` and 95 more | " +
			"`condition` | `over` | nothing is planned |",
		"| `sandbox_lease.l99` | `ttl` | `over` | nothing is planned |",
		"| `sandbox_environment.game` | `condition` | none | nothing is planned |",
	} {
		if !strings.Contains(got, line+"\n") {
			t.Errorf("no line is %s in\n%s", line, got)
		}
	}
	if lines := strings.Count(got, "\n"); err != nil || lines > 15 {
		t.Errorf("%d lines (%v):\n%s", lines, err, got)
	}
}

// A hundred leases that vanished, and are leased again, are one row of drift and one of changes.
func TestManyChangesAreCounted(t *testing.T) {
	t.Parallel()
	var vanished, planned []string
	for i := range 100 {
		name := fmt.Sprintf("l%02d", i)
		vanished = append(vanished, object("sandbox_lease", name, `{"actions": ["delete"], "before": {}, "after": null}`))
		planned = append(planned, object("sandbox_lease", name, `{"actions": ["create"], "before": null, "after": {}}`))
	}
	planned = append(planned, object("sandbox_environment", "game", `{"actions": ["create"], "before": null, "after": {}}`))
	got, err := summarize(t, plan(strings.Join(planned, ","), strings.Join(vanished, ",")))
	const all = "| 100 `sandbox_lease`: `sandbox_lease.l00`, `sandbox_lease.l01`, `sandbox_lease.l02` and 97 more | "
	for _, line := range []string{all + "vanished | create |", all + "create |", "| `sandbox_environment.game` | create |"} {
		if !strings.Contains(got, line+"\n") {
			t.Errorf("no line is %s in\n%s", line, got)
		}
	}
	if lines := strings.Count(got, "\n"); err != nil || lines > 20 {
		t.Errorf("%d lines (%v):\n%s", lines, err, got)
	}
}

func TestSensitiveValuesAreNotShown(t *testing.T) {
	t.Parallel()
	got, err := summarize(t, plan("", object("sandbox_lease", "a",
		`{"actions": ["update"], "before": {"image": "secret-1"}, "after": {"image": "secret-2"}, "before_sensitive": {"image": true}, "after_sensitive": {"image": true}}`)))
	if err != nil || strings.Contains(got, "secret") ||
		!strings.Contains(got, "`image`: expected (sensitive), observed (sensitive)") {
		t.Errorf("%v\n%s", err, got)
	}
}

func TestOfMapsAndListsOnlyTheNameIsShown(t *testing.T) {
	t.Parallel()
	got, err := summarize(t, plan("", object("sandbox_environment", "a",
		`{"actions": ["update"], "before": {"env": {"KEY": "secret-1"}}, "after": {"env": {"KEY": "secret-2"}}, "after_sensitive": {"env": {"KEY": true}}}`)))
	if err != nil || strings.Contains(got, "secret") ||
		!strings.Contains(got, "`env`: expected (several values), observed (several values)") {
		t.Errorf("%v\n%s", err, got)
	}
}

// Findings come from data sources. Several may read the same finding. Resolved findings, and findings of other kinds,
// are no news.
func TestOpenFindingsAreListedOnce(t *testing.T) {
	t.Parallel()
	finding := func(id, more string) string {
		return `{"id": ` + id + `, "kind": "changed", "lease_id": "did:plc:a::g", "field": "memory_mb", "expected": "512", "observed": "96", "first_seen_at": "2026-01-02T03:04:05Z", ` + more + `}`
	}
	read := func(name, findings string) string {
		return `{"address": "data.sandbox_drift.` + name + `", "mode": "data", "type": "sandbox_drift", "name": "` + name +
			`", "provider_name": "registry.opentofu.org/sandbox-lease/sandbox", "values": {"findings": [` + findings + `]}}`
	}
	got, err := summarize(t,
		`{"format_version": "1.2", "prior_state": {"format_version": "1.0", "values": {"root_module": {"resources": [`+
			read("all", finding("1", `"resolved_at": null`)+","+finding("2", `"resolved_at": "2026-01-03T00:00:00Z"`))+
			`], "child_modules": [{"resources": [`+read("open", finding("1", `"resolved_at": null`))+`]}]}}}}`)
	const row = "| `did:plc:a::g` | `changed` `memory_mb` | `512` | `96` | `2026-01-02T03:04:05Z` |\n"
	if err != nil || strings.Count(got, "`did:plc:a::g`") != 1 || !strings.Contains(got, "### Open findings of drift") ||
		!strings.Contains(got, row) {
		t.Errorf("%v\n%s", err, got)
	}
}

// A job fails on differences from the ledger, planned or not. Planned changes, ends by the rules and resolved findings
// do not count.
func TestAJobCanFailOnDrift(t *testing.T) {
	t.Parallel()
	found := func(resolved string) string {
		return `{"format_version": "1.2", "prior_state": {"format_version": "1.0", "values": {"root_module": {"resources": [
			{"address": "data.sandbox_drift.all", "mode": "data", "type": "sandbox_drift", "name": "all",
			"provider_name": "registry.opentofu.org/sandbox-lease/sandbox", "values": {"findings": [
				{"id": 1, "kind": "stopped", "lease_id": "did:plc:a::g", "resolved_at": ` + resolved + `}]}}]}}}}`
	}
	lease := func(change string) string { return object("sandbox_lease", "a", change) }
	for name, tt := range map[string]struct {
		plan   string
		drifts bool
	}{
		"nothing":          {plan: plan("", "")},
		"a planned change": {plan: plan(lease(`{"actions": ["create"], "before": null, "after": {}}`), "")},
		"an end": {plan: plan("", lease(
			`{"actions": ["update"], "before": {}, "after": {"ended_by": "ttl", "cost_usd": "0.12"}}`))},
		"a resolved finding": {plan: found(`"2026-01-03T00:00:00Z"`)},
		"an open finding":    {plan: found("null"), drifts: true},
		"what vanished":      {plan: plan("", lease(`{"actions": ["delete"], "before": {}, "after": null}`)), drifts: true},
		"what changed": {plan: plan("", lease(
			`{"actions": ["update"], "before": {"memory_mb": 512}, "after": {"memory_mb": 96}}`)), drifts: true},
	} {
		got, err := summarize(t, tt.plan, "--fail-on-drift")
		if drifts := sandbox.CodeOf(err) == sandbox.Failed; drifts != tt.drifts || drifts != (err != nil) {
			t.Errorf("%s: %v", name, err)
		}
		if without, err := summarize(t, tt.plan); err != nil || without != got {
			t.Errorf("%s: without the flag it prints\n%s(%v), with it\n%s", name, without, err, got)
		}
	}
}

func TestAFindingIsListedByTheClosestThatItNames(t *testing.T) {
	t.Parallel()
	got, err := summarize(t, `{"format_version": "1.2", "prior_state": {"format_version": "1.0", "values": {"root_module": {
		"resources": [{"address": "data.sandbox_drift.all", "mode": "data", "type": "sandbox_drift", "name": "all",
			"provider_name": "registry.opentofu.org/sandbox-lease/sandbox", "values": {"findings": [
				{"id": 1, "kind": "orphan", "lease_id": null, "sandbox_id": "sbx", "environment_id": "e", "instance": "i"},
				{"id": 2, "kind": "usage", "lease_id": null, "sandbox_id": null, "environment_id": "e", "instance": "i"},
				{"id": 3, "kind": "usage", "lease_id": null, "sandbox_id": null, "environment_id": null, "instance": "i"}
			]}}]}}}}`)
	for _, row := range []string{"| `sbx` | `orphan` |", "| `e` | `usage` |", "| `i` | `usage` |"} {
		if err != nil || !strings.Contains(got, row) {
			t.Errorf("it lacks %q: %v\n%s", row, err, got)
		}
	}
}

func TestOnlyObjectsOfThisProviderAreReported(t *testing.T) {
	t.Parallel()
	got, err := summarize(t,
		strings.ReplaceAll(plan(object("sandbox_lease", "a", `{"actions": ["create"], "before": null, "after": {}}`), ""),
			"sandbox-lease/sandbox", "hashicorp/null"))
	if err != nil || !strings.Contains(got, "No changes, and no drift.") {
		t.Errorf("%v\n%s", err, got)
	}
}

func TestWhatIsNoPlanIsRefused(t *testing.T) {
	t.Parallel()
	for _, text := range []string{"", "Plan: 1 to add", "{}", `{"format_version": "9.0"}`} {
		_, err := summarize(t, text)
		if sandbox.CodeOf(err) != sandbox.Invalid || !strings.Contains(err.Error(), "terraform show -json") {
			t.Errorf("%q: %v", text, err)
		}
	}
}

// A plan may be in a file. A saved plan is not JSON yet, and the error says how it becomes JSON.
func TestAPlanMayBeInAFile(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	file := func(name, text string) string {
		name = filepath.Join(dir, name)
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return name
	}
	got, err := summarize(t, "no plan", file("plan.json", plan(
		object("sandbox_environment", "a", `{"actions": ["create"], "before": null, "after": {}}`), "")))
	if err != nil || !strings.Contains(got, "sandbox_environment.a") {
		t.Errorf("of a file it says %s (%v)", got, err)
	}
	saved := file("planned", "PK\x03\x04...")
	for name, want := range map[string]string{
		saved:                         "terraform show -json " + saved,
		filepath.Join(dir, "nowhere"): "no such file",
		file("text", "no plan"):       "pipe in the output of terraform show -json",
	} {
		if _, err := summarize(t, "", name); sandbox.CodeOf(err) != sandbox.Invalid || !strings.Contains(err.Error(), want) {
			t.Errorf("of %s it says %v", name, err)
		}
	}
	if _, err := summarize(t, "", "a", "b"); sandbox.CodeOf(err) != sandbox.Invalid {
		t.Errorf("of two files it says %v", err)
	}
}
