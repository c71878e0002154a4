package dashboard

import (
	"slices"

	"github.com/sandbox-lease/terraform-provider-sandbox/reconciler/dashboard/link"
	"github.com/sandbox-lease/terraform-provider-sandbox/reconciler/dashboard/list"
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
	Search string
	Agent  string
	Labels string
	Status string
	Tabs   []tab
	Sort   list.Sorting
	Leases []sandbox.Lease
	// First and Next are the URLs of the first and the next page, "" for none.
	First, Next string
	// Clear is the URL without filters, "" if there is none.
	Clear string
}

// leaseStatuses are the filters of leases. Ended leases are shown only on request.
var leaseStatuses = []string{
	string(sandbox.LeaseActive), string(sandbox.LeasePending), string(sandbox.LeaseExpired),
	string(sandbox.LeaseDestroyed), "all",
}

// leases lists leases.
func leases(p *page) error {
	s := p.scope
	v := leasesPage{
		scope: s, Search: p.query("q"), Agent: p.query("agent"), Labels: p.query("labels"),
		Status: p.orDefault("status", leaseStatuses[0]),
	}
	if !slices.Contains(leaseStatuses, v.Status) {
		return sandbox.InvalidFields("the page's URL",
			[]sandbox.Field{{Name: "status", Problem: "must be active, pending, expired, destroyed or all"}})
	}
	here := func(status, sort, after string) string {
		return link.To(link.Root+"leases", "environment", p.query("environment"), "q", v.Search, "agent", v.Agent,
			"labels", v.Labels, "status", status, "sort", sort, "after", after)
	}
	v.Sort = list.NewSorting(p.orDefault("sort", string(sandbox.SortByID)),
		func(by string) string { return here(v.Status, by, "") })
	for _, status := range leaseStatuses {
		v.Tabs = append(v.Tabs, tab{status, here(status, p.query("sort"), ""), status == v.Status})
	}
	if v.Search+v.Agent+v.Labels+p.query("environment") != "" {
		v.Clear = link.To(link.Root+"leases", "status", v.Status)
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
		v.Next = here(v.Status, p.query("sort"), p.filter(&v).Next(v.Leases[leasesPerPage-1]))
	}
	if p.query("after") != "" {
		v.First = here(v.Status, p.query("sort"), "")
	}
	return p.show("leases", "Leases", "leases", live, v)
}

// fill adds the leases of the page and the URL of the next page.
func (p *page) fill(v *leasesPage) (err error) {
	v.Leases, err = p.service.ListLeases(p.ctx, p.filter(v))
	return err
}

func (p *page) filter(v *leasesPage) sandbox.LeaseFilter {
	status := v.Status
	if status == "all" {
		status = ""
	}
	return sandbox.LeaseFilter{
		EnvironmentID: v.Environment,
		Search:        v.Search,
		AgentDID:      v.Agent,
		Labels:        sandbox.LabelSelector(v.Labels),
		Status:        sandbox.LeaseStatus(status),
		Sort:          sandbox.LeaseSort(v.Sort.By),
		After:         p.query("after"),
		Limit:         leasesPerPage + 1,
	}
}
