package dashboard

import (
	"cmp"
	"slices"

	"github.com/sandbox-lease/terraform-provider-sandbox/reconciler/dashboard/link"
	"github.com/sandbox-lease/terraform-provider-sandbox/reconciler/dashboard/list"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// findingsPerPage is how many findings a page lists.
const findingsPerPage = 200

// driftPage lists findings.
type driftPage struct {
	scope
	Search   string
	Status   string
	Sort     list.Sorting
	Tabs     []tab
	Findings []sandbox.DriftFinding
	// More means that there are more findings.
	More bool
}

// driftOrders are the orders of the findings of a page.
var driftOrders = list.Orders[sandbox.DriftFinding]{
	"kind": list.By(func(f sandbox.DriftFinding) string { return string(f.Kind) }),
	"lease": list.By(func(f sandbox.DriftFinding) string {
		return cmp.Or(f.LeaseID, f.SandboxID, f.EnvironmentID)
	}),
	"seen": func(a, b sandbox.DriftFinding) int { return a.FirstSeenAt.Compare(b.FirstSeenAt) },
}

// drift lists differences between ledger and backends, newest first.
func drift(p *page) error {
	s := p.scope
	statuses := []string{string(sandbox.DriftOpen), string(sandbox.DriftResolved), "all"}
	v := driftPage{scope: s, Search: p.query("q"), Status: p.orDefault("status", statuses[0])}
	if !slices.Contains(statuses, v.Status) {
		return sandbox.InvalidFields("the page's URL",
			[]sandbox.Field{{Name: "status", Problem: "must be open, resolved or all"}})
	}
	here := func(status, sort string) string {
		return link.To(link.Root+"drift", "environment", s.Environment, "q", v.Search, "status", status, "sort", sort)
	}
	for _, status := range statuses {
		v.Tabs = append(v.Tabs, tab{status, here(status, p.query("sort")), status == v.Status})
	}
	v.Sort = list.NewSorting(p.orDefault("sort", "-seen"), func(by string) string { return here(v.Status, by) })
	live, err := p.liveAddress(s.Environment, "")
	if err != nil {
		return err
	}
	if s.Any {
		f := sandbox.DriftFilter{
			EnvironmentID: s.Environment,
			Status:        sandbox.DriftStatus(v.Status),
			Limit:         findingsPerPage + 1,
		}
		if v.Status == "all" {
			f.Status = ""
		}
		if v.Findings, err = p.service.ListDrift(p.ctx, f); err != nil {
			return err
		}
	}
	if v.More = len(v.Findings) > findingsPerPage; v.More {
		v.Findings = v.Findings[:findingsPerPage]
	}
	v.Findings = slices.DeleteFunc(v.Findings, func(f sandbox.DriftFinding) bool {
		return !list.Contains(v.Search, f.LeaseID, f.EnvironmentID, f.SandboxID, string(f.Kind))
	})
	if err := driftOrders.Sort(v.Findings, v.Sort.By); err != nil {
		return err
	}
	return p.show("drift", "Drift", "drift", live, v)
}
