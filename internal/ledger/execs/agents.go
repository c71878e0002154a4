package execs

import (
	"net/url"
	"strings"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/ledger/storage"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// Agent is a process that serves HTTP, with columns of its sandbox's row.
type Agent struct {
	Process       `gorm:"embedded"`
	EnvironmentID string
	AgentDID      string `gorm:"column:agent_did"`
	Phase         sandbox.Phase
}

// Domain converts the agent to the domain type.
func (a *Agent) Domain() sandbox.Agent {
	return sandbox.Agent{
		ID: a.LeaseID + "/" + a.Name, Name: a.Name, Description: a.Description, LeaseID: a.LeaseID,
		EnvironmentID: a.EnvironmentID, AgentDID: a.AgentDID, Generation: a.Generation,
		Path: "/v1/leases/" + url.PathEscape(a.LeaseID) + "/agents/" + a.Name + "/", Port: a.Port, State: a.state(),
		StartedAt: a.StartedAt.Time(), Error: a.Error,
	}
}

func (a *Agent) state() sandbox.AgentState {
	for state, is := range agentStates {
		if is.holds(a) {
			return state
		}
	}
	return sandbox.AgentStarting
}

// agentState is the condition of a state, for a row and for a query.
type agentState struct {
	holds func(a *Agent) bool
	where string
}

// agentStates are the conditions of all states except AgentStarting, which applies if none of them holds. At most one
// holds.
var agentStates = map[sandbox.AgentState]agentState{
	sandbox.AgentEnded: {
		func(a *Agent) bool { return !a.State.Live() },
		"NOT (" + liveProcess + ")",
	},
	sandbox.AgentAsleep: {
		func(a *Agent) bool { return a.State.Live() && a.Phase == sandbox.PhaseAsleep },
		liveProcess + " AND sandboxes.phase = 'asleep'",
	},
	sandbox.AgentRunning: {
		func(a *Agent) bool { return a.State == sandbox.ProcessRunning && a.Phase == sandbox.PhaseAwake },
		"state = 'running' AND sandboxes.phase = 'awake'",
	},
}

// Agents returns the agents that a filter selects, of leases that have not ended, by lease id and name.
func (repo Rows) Agents(f sandbox.AgentFilter) ([]Agent, error) {
	q := repo.db.Table("processes").
		Select("processes.*, sandboxes.environment_id, sandboxes.agent_did, sandboxes.phase").
		Joins("JOIN sandboxes ON sandboxes.id = processes.sandbox_id").
		Where("port <> 0 AND ?", repo.tx.IsLive()).
		Where("EXISTS (SELECT 1 FROM leases WHERE leases.id = sandboxes.lease_id AND leases.sandbox_id = sandboxes.id)").
		Order("processes.lease_id, processes.name").Limit(storage.PageSize(f.Limit))
	if f.EnvironmentID != "" {
		q = q.Where("sandboxes.environment_id = ?", f.EnvironmentID)
	}
	if f.LeaseID != "" {
		q = q.Where("processes.lease_id = ?", f.LeaseID)
	}
	if is, ok := agentStates[f.State]; ok {
		q = q.Where(is.where)
	} else if f.State != "" {
		for _, is := range agentStates {
			q = q.Where("NOT (" + is.where + ")")
		}
	}
	if slash := strings.LastIndexByte(f.After, '/'); slash >= 0 {
		lease, name := f.After[:slash], f.After[slash+1:]
		q = q.Where("processes.lease_id > ? OR processes.lease_id = ? AND processes.name > ?", lease, lease, name)
	}
	var rows []Agent
	return rows, storage.Error("reading agents", q.Scan(&rows).Error)
}
