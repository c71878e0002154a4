package sandbox

import (
	"fmt"
	"regexp"
	"sync"
	"time"
)

// MaxEndpointDescription limits the description of an endpoint, in bytes.
const MaxEndpointDescription = 200

// Endpoint is where a process serves HTTP. Such a process is an agent: the service lists it and forwards requests to
// it.
type Endpoint struct {
	Port        int    `json:"port" doc:"TCP port on the sandbox's 127.0.0.1 where the process serves HTTP, 1 to 65535."`
	Description string `json:"description,omitempty" doc:"What the agent does, at most 200 bytes. Default: empty."`
}

// fields checks an endpoint. Field names start with prefix.
func (e Endpoint) fields(prefix string) (f []Field) {
	if e.Port < 1 || e.Port > 65535 {
		f = append(f, Field{prefix + "port", fmt.Sprintf("must be between 1 and 65535, not %d", e.Port)})
	}
	if len(e.Description) > MaxEndpointDescription {
		f = append(f, Field{prefix + "description",
			fmt.Sprintf("must be at most %d bytes, not %d", MaxEndpointDescription, len(e.Description))})
	}
	return f
}

// AgentState is the state of an agent.
type AgentState string

// The states.
const (
	// AgentStarting: its process or its sandbox is about to start.
	AgentStarting AgentState = "starting"
	// AgentRunning: its process runs. It may not listen yet.
	AgentRunning AgentState = "running"
	// AgentAsleep: its sandbox sleeps. A request wakes it.
	AgentAsleep AgentState = "asleep"
	// AgentEnded: its process has ended and does not start again.
	AgentEnded AgentState = "ended"
)

// AgentStates are all states of agents.
var AgentStates = []AgentState{AgentStarting, AgentRunning, AgentAsleep, AgentEnded}

// Agent is a process with an endpoint, in the sandbox of a lease that has not ended.
type Agent struct {
	// ID is the lease's id, a slash, and the name.
	ID string `json:"id"`
	// Name is the name of the process, unique in its lease.
	Name          string `json:"name"`
	Description   string `json:"description,omitempty"`
	LeaseID       string `json:"lease_id"`
	EnvironmentID string `json:"environment_id"`
	AgentDID      string `json:"agent_did" doc:"The agent that holds the lease."`
	Generation    int64  `json:"generation"`
	// Path is the path at which the service forwards requests to it.
	Path  string     `json:"path" doc:"Requests to this path, and below it, are passed on to the agent."`
	Port  int        `json:"port"`
	State AgentState `json:"state" enum:"starting,running,asleep,ended"`
	// StartedAt is its latest start. Error says why it last ended.
	StartedAt time.Time `json:"started_at,omitzero"`
	Error     string    `json:"error,omitempty"`
}

// AgentFilter selects agents. Empty fields match everything.
type AgentFilter struct {
	EnvironmentID string
	LeaseID       string
	State         AgentState
	// After is the id of the last agent of the previous page.
	After string
	// Limit is the page size, 1 to MaxPage; zero means MaxPage.
	Limit int
}

// Validate checks a filter. Errors: Invalid.
func (f AgentFilter) Validate() error {
	return InvalidFields("the agent filter", checkLimit(checkState(nil, f.State, AgentStates), f.Limit, MaxPage))
}

// HeaderSession is the header with the session that an agent works for. It is in requests to the agent, in the agent's
// model calls, and in the gateway's calls of the upstream.
const HeaderSession = "X-Sandbox-Session"

var sessionLabel = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^[A-Za-z0-9._:-]{0,128}$`) })

// CheckSessionLabel checks a value of HeaderSession, which may be empty. Errors: Invalid.
func CheckSessionLabel(v string) error {
	if sessionLabel().MatchString(v) {
		return nil
	}
	return InvalidFields("request", []Field{{HeaderSession,
		"must be at most 128 of A-Z, a-z, 0-9, '.', '_', ':' and '-'"}})
}

// Connections of a sandbox's agents.
const (
	// MaxConnections limits the open connections to the agents of one sandbox.
	MaxConnections = 32
	// AgentStart is how long a request waits for an agent to listen.
	AgentStart = 30 * time.Second
)
