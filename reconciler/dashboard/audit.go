package dashboard

import (
	"slices"

	"github.com/sandbox-lease/terraform-provider-sandbox/reconciler/dashboard/link"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

const (
	// changesPerPage is how many changes a page lists.
	changesPerPage = 100
	// scannedEvents is how many events a page reads to find changes by callers.
	scannedEvents = 500
)

// auditPage lists what callers changed.
type auditPage struct {
	scope
	Type    string
	Tabs    []tab
	Changes []sandbox.Event
	// First and Earlier are the URLs of the latest changes and of earlier ones, "" for none.
	First, Earlier string
}

// auditTypes are the kinds of changes.
var auditTypes = []struct{ name, types string }{
	{"all", ""}, {"environments", "environment.*"}, {"leases", "lease.*"}, {"conditions", "condition.*"},
	{"tokens", "token.*"},
}

// auditTabs are the tabs of both pages.
func (p *page) auditTabs(chosen string) (tabs []tab) {
	for _, t := range auditTypes {
		tabs = append(tabs, tab{t.name, link.To(link.Root+"audit", "environment", p.query("environment"), "type", t.name),
			t.name == chosen})
	}
	if p.may("audit") {
		tabs = append(tabs, tab{confinementTab, link.To(link.Root+"audit/confinement", "environment", p.query("environment")),
			chosen == confinementTab})
	}
	return tabs
}

// audit lists the events that callers caused, latest first.
func audit(p *page) error {
	s := p.scope
	v := auditPage{scope: s, Type: p.orDefault("type", auditTypes[0].name)}
	i := slices.IndexFunc(auditTypes, func(t struct{ name, types string }) bool { return t.name == v.Type })
	if i < 0 {
		return sandbox.InvalidFields("the page's URL",
			[]sandbox.Field{{Name: "type", Problem: "must be all, environments, leases, conditions or tokens"}})
	}
	v.Tabs = p.auditTabs(v.Type)
	here := func(before string) string {
		return link.To(link.Root+"audit", "environment", s.Environment, "type", v.Type, "before", before)
	}
	before, err := p.number("before")
	if err != nil {
		return err
	}
	live, err := p.liveAddress(s.Environment, "")
	if err != nil {
		return err
	}
	var events []sandbox.Event
	if s.Any {
		events, err = p.service.ListEvents(p.ctx, sandbox.EventFilter{
			EnvironmentID: s.Environment, Type: auditTypes[i].types, Latest: true, BeforeID: before, Limit: scannedEvents,
		})
		if err != nil {
			return err
		}
	}
	last := int64(0) // the earliest event that was looked at, if there are more
	if len(events) == scannedEvents {
		last = events[scannedEvents-1].ID
	}
	for _, e := range events {
		if e.Actor == "" {
			continue
		}
		if v.Changes = append(v.Changes, e); len(v.Changes) == changesPerPage {
			last = e.ID
			break
		}
	}
	if last > 0 {
		v.Earlier = here(itoa(last))
	}
	if before > 0 {
		v.First = here("")
	}
	return p.show("audit", "Audit", "audit", live, v)
}

const confinementTab = "confinement"

// confinementPage shows the confinement of sandboxes as their backends report it.
type confinementPage struct {
	scope
	Tabs []tab
	// Run is the URL that runs the audit. Report is nil before.
	Run    string
	Report *sandbox.AuditReport
	Passed int
	Rows   []auditRow
}

// auditRow is a finding.
type auditRow struct {
	sandbox.AuditCheck
	Instance string
}

// confinement audits the confinement of sandboxes on request. It changes nothing.
func confinement(p *page) error {
	s := p.scope
	v := confinementPage{
		scope: s, Tabs: p.auditTabs(confinementTab),
		Run: link.To(link.Root+"audit/confinement", "environment", s.Environment, "run", "1"),
	}
	if s.Any && p.query("run") != "" {
		report, err := p.service.Audit(p.ctx, sandbox.AuditRequest{EnvironmentID: s.Environment})
		if err != nil {
			return err
		}
		v.Report = &report
		for _, instance := range report.Instances {
			for _, c := range instance.Checks {
				switch c.Verdict {
				case sandbox.VerdictFinding:
					v.Rows = append(v.Rows, auditRow{c, instance.Instance})
				case sandbox.VerdictPass:
					v.Passed++
				}
			}
		}
	}
	return p.show("confinement", "Confinement", "audit", "", v)
}
