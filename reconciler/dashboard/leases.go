package dashboard

import (
	"slices"

	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// leasesPerPage is how many leases a page lists.
const leasesPerPage = 50

// tab is one of several lists that a page can show.
type tab struct {
	Name, Address string
	Chosen        bool
}

// leasesPage is a page of leases.
type leasesPage struct {
	scope
	Agent  string
	Status string
	Tabs   []tab
	Leases []sandbox.Lease
	// First and Next are where the first page and the next one are, "" where there is none.
	First, Next string
}

// leaseStatuses are what leases can be chosen by. Those that have ended are not shown unless they are asked for.
var leaseStatuses = []string{string(sandbox.LeaseActive), string(sandbox.LeasePending), string(sandbox.LeaseExpired), string(sandbox.LeaseDestroyed), "all"}

// leases lists leases by id.
func leases(p *page) error {
	s, ok, err := p.scope()
	if err != nil {
		return err
	}
	v := leasesPage{scope: s, Agent: p.query("agent"), Status: p.query("status")}
	if v.Status == "" {
		v.Status = leaseStatuses[0]
	}
	if !slices.Contains(leaseStatuses, v.Status) {
		return sandbox.InvalidFields("the page's address", []sandbox.Field{{Name: "status", Problem: "must be active, pending, expired, destroyed or all"}})
	}
	here := func(status, after string) string {
		return address(Root+"leases", "environment", p.query("environment"), "agent", v.Agent, "status", status, "after", after)
	}
	for _, status := range leaseStatuses {
		v.Tabs = append(v.Tabs, tab{status, here(status, ""), status == v.Status})
	}
	live, err := p.liveAddress(s.Environment, "")
	if err != nil {
		return err
	}
	if ok {
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

// fill lists the page's leases and, if there is one, the one after them.
func (p *page) fill(v *leasesPage) (err error) {
	status := v.Status
	if status == "all" {
		status = ""
	}
	v.Leases, err = p.service.ListLeases(p.ctx, sandbox.LeaseFilter{
		EnvironmentID: v.Environment, AgentDID: v.Agent, Status: sandbox.LeaseStatus(status), After: p.query("after"), Limit: leasesPerPage + 1,
	})
	return err
}
