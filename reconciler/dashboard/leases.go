package dashboard

import (
	"slices"

	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// leasesPerPage is how many leases a page lists.
const leasesPerPage = 50

// tab is a link to one list of a page.
type tab struct {
	Name, Address string
	Chosen        bool
}

// leasesPage is a page of leases.
type leasesPage struct {
	scope
	Agent  string
	Labels string
	Status string
	Tabs   []tab
	Leases []sandbox.Lease
	// First and Next are the URLs of the first and the next page, "" for none.
	First, Next string
}

// leaseStatuses are the filters of leases. Ended leases are shown only on request.
var leaseStatuses = []string{
	string(sandbox.LeaseActive), string(sandbox.LeasePending), string(sandbox.LeaseExpired),
	string(sandbox.LeaseDestroyed), "all",
}

// leases lists leases by id.
func leases(p *page) error {
	s := p.scope
	v := leasesPage{scope: s, Agent: p.query("agent"), Labels: p.query("labels"), Status: p.query("status")}
	if v.Status == "" {
		v.Status = leaseStatuses[0]
	}
	if !slices.Contains(leaseStatuses, v.Status) {
		return sandbox.InvalidFields("the page's URL",
			[]sandbox.Field{{Name: "status", Problem: "must be active, pending, expired, destroyed or all"}})
	}
	here := func(status, after string) string {
		return address(Root+"leases", "environment", p.query("environment"), "agent", v.Agent,
			"labels", v.Labels, "status", status, "after", after)
	}
	for _, status := range leaseStatuses {
		v.Tabs = append(v.Tabs, tab{status, here(status, ""), status == v.Status})
	}
	live, err := p.liveAddress(s.Environment, "")
	if err != nil {
		return err
	}
	if s.Any {
		if err := p.fill(&v); err != nil {
			return err
		}
	}
	if len(v.Leases) > leasesPerPage {
		v.Leases = v.Leases[:leasesPerPage]
		v.Next = here(v.Status, v.Leases[leasesPerPage-1].ID)
	}
	if p.query("after") != "" {
		v.First = here(v.Status, "")
	}
	return p.show("leases", "Leases", "leases", live, v)
}

// fill adds the leases of the page and the URL of the next page.
func (p *page) fill(v *leasesPage) (err error) {
	status := v.Status
	if status == "all" {
		status = ""
	}
	v.Leases, err = p.service.ListLeases(p.ctx, sandbox.LeaseFilter{
		EnvironmentID: v.Environment,
		AgentDID:      v.Agent,
		Labels:        sandbox.LabelSelector(v.Labels),
		Status:        sandbox.LeaseStatus(status),
		After:         p.query("after"),
		Limit:         leasesPerPage + 1,
	})
	return err
}
