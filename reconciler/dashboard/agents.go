package dashboard

import (
	"github.com/sandbox-lease/terraform-provider-sandbox/reconciler/dashboard/link"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// listedAgents is how many agents a page lists.
const listedAgents = 50

// agentsPage lists agents: processes that serve HTTP.
type agentsPage struct {
	scope
	// Lease limits the list to one lease, "" for all.
	Lease  string
	State  string
	Tabs   []tab
	Agents []sandbox.Agent
	// First and Next are the URLs of the first and the next page, "" for none.
	First, Next string
}

// agents lists the agents of leases that have not ended, by lease and name.
func agents(p *page) error {
	s := p.scope
	v := agentsPage{scope: s, Lease: p.query("lease"), State: p.orDefault("state", "all")}
	here := func(state, after string) string {
		return link.To(link.Root+"agents", "environment", s.Environment, "lease", v.Lease, "state", state, "after", after)
	}
	v.Tabs = append(v.Tabs, tab{"all", here("all", ""), v.State == "all"})
	for _, state := range sandbox.AgentStates {
		v.Tabs = append(v.Tabs, tab{string(state), here(string(state), ""), v.State == string(state)})
	}
	f := sandbox.AgentFilter{
		EnvironmentID: s.Environment, LeaseID: v.Lease, State: sandbox.AgentState(v.State), After: p.query("after"),
		Limit: listedAgents + 1,
	}
	if v.State == "all" {
		f.State = ""
	}
	live, err := p.liveAddress(s.Environment, "")
	if err != nil {
		return err
	}
	if s.Any {
		if v.Agents, err = p.service.Agents(p.ctx, f); err != nil {
			return err
		}
	}
	if len(v.Agents) > listedAgents {
		v.Agents = v.Agents[:listedAgents]
		v.Next = here(v.State, v.Agents[listedAgents-1].ID)
	}
	if p.query("after") != "" {
		v.First = here(v.State, "")
	}
	return p.show("agents", "Agents", "agents", live, v)
}
