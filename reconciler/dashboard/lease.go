package dashboard

import (
	"slices"

	"github.com/sandbox-lease/terraform-provider-sandbox/reconciler/dashboard/chart"
	"github.com/sandbox-lease/terraform-provider-sandbox/reconciler/dashboard/link"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

const (
	// eventsPerPage is how many events of a lease a page shows.
	eventsPerPage = 50
	// latestCommands is how many commands the overview of a lease shows.
	latestCommands = 5
)

// leaseHead is the head of every page of a lease.
type leaseHead struct {
	sandbox.Lease
	Actions []action // possible actions of the caller
	Tabs    []tab
}

// Live reports whether the lease is usable.
func (l leaseHead) Live() bool { return isLive(l.Lease) }

func isLive(l sandbox.Lease) bool {
	return l.Status == sandbox.LeasePending || l.Status == sandbox.LeaseActive
}

// leaseTabs are the pages of a lease by their paths, with the operations that they need.
var leaseTabs = []struct{ path, name, operation string }{
	{"", "Overview", "get-lease"}, {"commands", "Commands", "list-execs"}, {"processes", "Processes", "list-processes"},
	{"sessions", "Sessions", "list-sessions"}, {"files", "Files", "list-files"}, {"calls", "Models", "list-llm-calls"},
	{"usage", "Usage", "lease-usage"},
}

// leaseHead returns the head of a page of the lease in the path. tab is the path of the page below that of the lease.
func (p *page) leaseHead(chosen string) (leaseHead, error) {
	l, err := p.service.GetLease(p.ctx, p.r.PathValue("id"))
	if err != nil {
		return leaseHead{}, err
	}
	h := leaseHead{Lease: l}
	for _, a := range actions {
		if p.may(a.operation) && a.applies(l) {
			h.Actions = append(h.Actions, a)
		}
	}
	for _, t := range leaseTabs {
		path := link.Lease(l.ID)
		if t.path != "" {
			path = link.Lease(l.ID, t.path)
		}
		if p.may(t.operation) && (l.PurgedAt.IsZero() || t.path == "") {
			h.Tabs = append(h.Tabs, tab{t.name, path, t.path == chosen})
		}
	}
	return h, nil
}

// showLease sends a page of a lease, which follows the lease.
func (p *page) showLease(name, title string, l sandbox.Lease, data any) error {
	live, err := p.liveAddress("", l.ID)
	if err != nil {
		return err
	}
	return p.show(name, title, "leases", live, data)
}

// leasePage is the overview of a lease.
type leasePage struct {
	leaseHead
	Life   *chart.Lifeline // nil if its events were purged
	Events []occurrence
	// Earlier is the URL of earlier events, "" for none.
	Earlier string
	Latest  string
	// Forgotten means that the events were purged.
	Forgotten bool
	Commands  []sandbox.Exec
}

// lease shows one lease with its life, latest commands and events.
func lease(p *page) error {
	h, err := p.leaseHead("")
	if err != nil {
		return err
	}
	v := leasePage{leaseHead: h}
	if err := p.addEvents(&v); err != nil {
		return err
	}
	if h.PurgedAt.IsZero() {
		commands, err := p.service.ListExecs(p.ctx, sandbox.ExecFilter{LeaseID: h.ID, Limit: chart.MaxCommands})
		if err != nil {
			return err
		}
		v.Commands = commands[:min(len(commands), latestCommands)]
		if v.Life, err = p.life(h.Lease, commands); err != nil {
			return err
		}
	}
	return p.showLease("lease", h.AgentDID, h.Lease, v)
}

// addEvents adds the sandbox's latest events up to the sequence in the URL, latest first.
func (p *page) addEvents(v *leasePage) error {
	last, err := p.number("before")
	if err != nil {
		return err
	}
	if last > 1 && last <= v.LastSequence {
		v.Latest, last = link.Lease(v.ID), last-1
	} else {
		last = v.LastSequence
	}
	from := max(last-eventsPerPage, 0)
	events, err := p.service.ListEvents(p.ctx,
		sandbox.EventFilter{LeaseID: v.ID, SandboxID: v.SandboxID, FromSequence: from, Limit: int(last - from)})
	switch sandbox.CodeOf(err) {
	case "":
	case sandbox.EventSequenceExpired, sandbox.NotFound:
		v.Forgotten = true
		return nil
	default:
		return err
	}
	slices.Reverse(events)
	v.Events = folded(events)
	if from > 0 {
		v.Earlier = link.To(link.Lease(v.ID), "before", itoa(from+1))
	}
	return nil
}

// occurrence is an event of the timeline. Times counts the renewals by one caller that follow each other.
type occurrence struct {
	sandbox.Event
	Times int
}

// folded folds renewals by one caller that follow each other into the latest one, which says when the lease ends.
func folded(events []sandbox.Event) (all []occurrence) {
	for _, e := range events {
		if n := len(all); n > 0 && e.Type == sandbox.EventRenewed && all[n-1].Type == e.Type && all[n-1].Actor == e.Actor {
			all[n-1].Times++
			continue
		}
		all = append(all, occurrence{e, 1})
	}
	return all
}

// life returns the lifeline of a lease. commands are its latest ones, latest first.
func (p *page) life(l sandbox.Lease, commands []sandbox.Exec) (*chart.Lifeline, error) {
	events, err := p.service.ListEvents(p.ctx, sandbox.EventFilter{
		LeaseID: l.ID, SandboxID: l.SandboxID, Type: "sandbox.*", Latest: true, Limit: chart.MaxEvents,
	})
	if code := sandbox.CodeOf(err); code == sandbox.NotFound || code == sandbox.EventSequenceExpired {
		return nil, nil
	} else if err != nil {
		return nil, err
	}
	var calls []sandbox.LLMCall
	if l.LLM.Calls > 0 && p.may("list-llm-calls") {
		calls, err = p.service.ListLLMCalls(p.ctx,
			sandbox.LLMCallQuery{EnvironmentID: l.EnvironmentID, LeaseID: l.ID, Limit: chart.MaxCalls})
		if err != nil {
			return nil, err
		}
	}
	return chart.NewLifeline(l, events, commands, calls, p.now()), nil
}
