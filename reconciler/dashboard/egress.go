package dashboard

import (
	"encoding/json"
	"slices"
	"strconv"
	"time"

	"github.com/sandbox-lease/terraform-provider-sandbox/reconciler/dashboard/format"
	"github.com/sandbox-lease/terraform-provider-sandbox/reconciler/dashboard/link"
	"github.com/sandbox-lease/terraform-provider-sandbox/reconciler/dashboard/list"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

const (
	// attemptsPerPage is how many egress events a page lists.
	attemptsPerPage = 100
	// groupedAttempts is how many of the latest egress events are grouped by host.
	groupedAttempts = 500
	// byHost is the view of attempts by host.
	byHost = "hosts"
)

// egressPage shows connection attempts of restricted sandboxes.
type egressPage struct {
	scope
	Search   string
	Type     string // byHost, or a type of attempts
	Tabs     []tab
	Sort     list.Sorting
	Hosts    []hostRow
	Attempts []attempt
	// Grouped is the number of events in Hosts; Full means that there are earlier ones.
	Grouped int
	Full    bool
	// Uncounted means that some attempts were only summed up, without their hosts.
	Uncounted bool
	// First and Earlier are the URLs of the latest attempts and of earlier ones, "" for none.
	First, Earlier string
}

// hostRow counts the attempts to reach a port of a host from an environment.
type hostRow struct {
	Environment             string
	Host                    string
	Port                    int
	Allowed, Denied, Failed int64
	Bytes                   int64 // sent and received
	// Reason is why the latest attempt was denied or failed.
	Reason string
	Last   time.Time
	Lease  string // of the latest attempt
	// Allow is the URL that allows the host, "" if the caller may not or it would not help. Now means that the rules
	// allow it by now.
	Allow string
	Now   bool
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

// Detail describes an error in words.
func (a attempt) Detail() string { return format.EventText(a.Made.Detail) }

// egressTypes are the views of attempts.
var egressTypes = []struct{ name, title, types string }{
	{byHost, "by host", "egress.*"}, {"all", "all attempts", "egress.*"},
	{"allowed", "allowed", string(sandbox.EventEgressAllowed)}, {"denied", "denied", string(sandbox.EventEgressDenied)},
	{"failed", "failed", string(sandbox.EventEgressFailed)},
}

// hostOrders are the orders of hosts.
var hostOrders = list.Orders[hostRow]{
	"host":    list.By(func(h hostRow) string { return h.Host }),
	"allowed": list.By(func(h hostRow) int64 { return h.Allowed }),
	"denied":  list.By(func(h hostRow) int64 { return h.Denied }),
	"failed":  list.By(func(h hostRow) int64 { return h.Failed }),
	"bytes":   list.By(func(h hostRow) int64 { return h.Bytes }),
	"last":    func(a, b hostRow) int { return a.Last.Compare(b.Last) },
}

// egress shows connection attempts of restricted sandboxes, by host or one by one.
func egress(p *page) error {
	s := p.scope
	v, types := egressPage{scope: s, Search: p.query("q"), Type: p.orDefault("type", byHost)}, ""
	here := func(kind, sort, before string) string {
		return link.To(link.Root+"egress", "environment", s.Environment, "q", v.Search, "type", kind, "sort", sort,
			"before", before)
	}
	v.Sort = list.NewSorting(p.orDefault("sort", "-last"), func(by string) string { return here(v.Type, by, "") })
	for _, t := range egressTypes {
		if t.name == v.Type {
			types = t.types
		}
		v.Tabs = append(v.Tabs, tab{t.title, here(t.name, "", ""), t.name == v.Type})
	}
	if types == "" {
		return sandbox.InvalidFields("the page's URL",
			[]sandbox.Field{{Name: "type", Problem: "must be hosts, all, allowed, denied or failed"}})
	}
	before, err := p.number("before")
	if err != nil {
		return err
	}
	live, err := p.liveAddress(s.Environment, "")
	if err != nil {
		return err
	}
	f := sandbox.EventFilter{
		EnvironmentID: s.Environment, Type: types, Latest: true, BeforeID: before, Limit: attemptsPerPage,
	}
	if v.Type == byHost {
		f.BeforeID, f.Limit = 0, groupedAttempts
	}
	var events []sandbox.Event
	if s.Any {
		if events, err = p.service.ListEvents(p.ctx, f); err != nil {
			return err
		}
	}
	if v.Type == byHost {
		if err := p.group(&v, events); err != nil {
			return err
		}
		return p.show("egress", "Egress", "egress", live, v)
	}
	for _, e := range events {
		if a := attemptOf(e); list.Contains(v.Search, a.Made.Host, a.Lease) {
			v.Attempts = append(v.Attempts, a)
		}
	}
	if len(events) == attemptsPerPage {
		v.Earlier = here(v.Type, "", itoa(events[len(events)-1].ID))
	}
	if before > 0 {
		v.First = here(v.Type, "", "")
	}
	return p.show("egress", "Egress", "egress", live, v)
}

// group counts events, latest first, by environment, host and port.
func (p *page) group(v *egressPage, events []sandbox.Event) error {
	type key struct {
		environment, host string
		port              int
	}
	rows := map[key]*hostRow{}
	for _, e := range events {
		a := attemptOf(e)
		if !a.Whole {
			v.Uncounted = true
			continue
		}
		if !list.Contains(v.Search, a.Made.Host, a.Lease) {
			continue
		}
		k := key{e.EnvironmentID, a.Made.Host, a.Made.Port}
		if rows[k] == nil {
			rows[k] = &hostRow{Environment: k.environment, Host: k.host, Port: k.port, Last: e.At, Lease: a.Lease}
		}
		r := rows[k]
		switch e.Type {
		case sandbox.EventEgressAllowed:
			r.Allowed++
		case sandbox.EventEgressDenied:
			r.Denied++
		case sandbox.EventEgressFailed:
			r.Failed++
		}
		if r.Reason == "" {
			r.Reason = a.Made.Reason
		}
		r.Bytes += a.Made.SentBytes + a.Made.ReceivedBytes
	}
	v.Grouped, v.Full = len(events), len(events) == groupedAttempts
	list, err := p.caller.Environments(p.ctx)
	if err != nil {
		return err
	}
	for _, r := range rows {
		i := slices.IndexFunc(list, func(e sandbox.Environment) bool { return e.ID == r.Environment })
		if i >= 0 && r.Denied > 0 {
			p.offer(r, list[i])
		}
		v.Hosts = append(v.Hosts, *r)
	}
	slices.SortFunc(v.Hosts, func(a, b hostRow) int { // rows has no order
		return slices.Compare([]string{a.Host, a.Environment, strconv.Itoa(a.Port)},
			[]string{b.Host, b.Environment, strconv.Itoa(b.Port)})
	})
	return hostOrders.Sort(v.Hosts, v.Sort.By)
}

// Reasons of the gateway that a rule for the host would remove. See internal/gateway/policy.
const (
	hostNotAllowed = "host_not_allowed"
	portNotAllowed = "port_not_allowed"
)

// offer offers to allow a host that the rules of its environment deny.
func (p *page) offer(r *hostRow, e sandbox.Environment) {
	if r.Reason != hostNotAllowed && r.Reason != portNotAllowed || e.Network != sandbox.NetworkRestricted {
		return
	}
	name, err := sandbox.CanonicalHost(r.Host)
	if err != nil { // no rule can name this host
		return
	}
	r.Now = slices.ContainsFunc(e.EgressRules().Allow,
		func(rule sandbox.EgressRule) bool { return rule.Host == name && allows(rule, r.Port) })
	if !r.Now && p.may("put-environment") {
		r.Allow = link.To(link.Environment(e.ID, "allow"), "host", name, "port", strconv.Itoa(r.Port))
	}
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
