package dashboard

import (
	"encoding/json"

	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// attemptsPerPage is how many events of egress a page lists.
const attemptsPerPage = 100

// egressPage lists what restricted sandboxes tried to reach.
type egressPage struct {
	scope
	Type     string
	Tabs     []tab
	Attempts []attempt
	// First and Earlier are where the latest and the ones before these are, "" where there is none.
	First, Earlier string
}

// attempt is one event of egress.
type attempt struct {
	Event sandbox.Event
	Made  sandbox.EgressAttempt
	// Lease is whose it was, "" where that is not known.
	Lease string
	// Whole: it is an attempt, and not a summary or a loss, which Data tells.
	Whole bool
}

// egressTypes are what attempts can be chosen by.
var egressTypes = []struct{ name, types string }{
	{"all", "egress.*"}, {"allowed", string(sandbox.EventEgressAllowed)}, {"denied", string(sandbox.EventEgressDenied)}, {"failed", string(sandbox.EventEgressFailed)},
}

// egress lists what restricted sandboxes tried to reach, the latest first.
func egress(p *page) error {
	s, ok, err := p.scope()
	if err != nil {
		return err
	}
	v, types := egressPage{scope: s, Type: p.query("type")}, ""
	if v.Type == "" {
		v.Type = egressTypes[0].name
	}
	here := func(kind, before string) string {
		return address(Root+"egress", "environment", s.Environment, "type", kind, "before", before)
	}
	for _, t := range egressTypes {
		if t.name == v.Type {
			types = t.types
		}
		v.Tabs = append(v.Tabs, tab{t.name, here(t.name, ""), t.name == v.Type})
	}
	if types == "" {
		return sandbox.InvalidFields("the page's address", []sandbox.Field{{Name: "type", Problem: "must be all, allowed, denied or failed"}})
	}
	before, err := p.number("before")
	if err != nil {
		return err
	}
	live, err := p.liveAddress(s.Environment, "")
	if err != nil {
		return err
	}
	if ok {
		events, err := p.service.ListEvents(p.ctx, sandbox.EventFilter{EnvironmentID: s.Environment, Type: types, Latest: true, BeforeID: before, Limit: attemptsPerPage})
		if err != nil {
			return err
		}
		for _, e := range events {
			v.Attempts = append(v.Attempts, attemptOf(e))
		}
		if len(events) == attemptsPerPage {
			v.Earlier = here(v.Type, itoa(events[len(events)-1].ID))
		}
	}
	if before > 0 {
		v.First = here(v.Type, "")
	}
	return p.show("egress", "Egress", "egress", live, v)
}

// attemptOf reads an event of egress.
func attemptOf(e sandbox.Event) attempt {
	a := attempt{Event: e, Lease: e.LeaseID}
	switch e.Type {
	case sandbox.EventEgressAllowed, sandbox.EventEgressClosed, sandbox.EventEgressDenied, sandbox.EventEgressFailed:
		a.Whole = json.Unmarshal(e.Data, &a.Made) == nil
	}
	if a.Made.Of != nil && a.Lease == "" {
		a.Lease = a.Made.Of.LeaseID
	}
	return a
}
