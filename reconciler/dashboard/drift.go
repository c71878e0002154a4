package dashboard

import (
	"slices"

	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// findingsPerPage is how many findings a page lists.
const findingsPerPage = 200

// driftPage lists findings.
type driftPage struct {
	scope
	Status   string
	Tabs     []tab
	Findings []sandbox.DriftFinding
	// More means that there are more findings.
	More bool
}

// drift lists differences between ledger and backends, newest first.
func drift(p *page) error {
	s := p.scope
	statuses := []string{string(sandbox.DriftOpen), string(sandbox.DriftResolved), "all"}
	v := driftPage{scope: s, Status: p.query("status")}
	if v.Status == "" {
		v.Status = statuses[0]
	}
	if !slices.Contains(statuses, v.Status) {
		return sandbox.InvalidFields("the page's URL",
			[]sandbox.Field{{Name: "status", Problem: "must be open, resolved or all"}})
	}
	for _, status := range statuses {
		v.Tabs = append(v.Tabs,
			tab{status, address(Root+"drift", "environment", s.Environment, "status", status), status == v.Status})
	}
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
	return p.show("drift", "Drift", "drift", live, v)
}
