package dashboard

import (
	"encoding/json"

	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// attemptsPerPage is how many egress events a page lists.
const attemptsPerPage = 100

// egressPage lists connection attempts of restricted sandboxes.
type egressPage struct {
	scope
	Type     string
	Tabs     []tab
	Attempts []attempt
	// First and Earlier are the URLs of the latest attempts and of earlier ones, "" for none.
	First, Earlier string
}

// attempt is one egress event.
type attempt struct {
	Event sandbox.Event
	Made  sandbox.EgressAttempt
	// Lease is the id of the lease, "" if unknown.
	Lease string
	// Whole means a single attempt. Otherwise the event is a summary or a loss, described in its data.
	Whole bool
}

// egressTypes are the filters of attempts.
var egressTypes = []struct{ name, types string }{
	{"all", "egress.*"}, {"allowed", string(sandbox.EventEgressAllowed)}, {"denied", string(sandbox.EventEgressDenied)},
	{"failed", string(sandbox.EventEgressFailed)},
}

// egress lists connection attempts of restricted sandboxes, latest first.
func egress(p *page) error {
	s := p.scope
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
		return sandbox.InvalidFields("the page's URL",
			[]sandbox.Field{{Name: "type", Problem: "must be all, allowed, denied or failed"}})
	}
	before, err := p.number("before")
	if err != nil {
		return err
	}
	live, err := p.liveAddress(s.Environment, "")
	if err != nil {
		return err
	}
	if s.Any {
		events, err := p.service.ListEvents(p.ctx, sandbox.EventFilter{
			EnvironmentID: s.Environment,
			Type:          types,
			Latest:        true,
			BeforeID:      before,
			Limit:         attemptsPerPage,
		})
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

// attemptOf decodes an egress event.
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
