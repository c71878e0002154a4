// Package routes has the operations of the API, one file per subject. It turns requests into calls of the service.
package routes

import (
	"time"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/service"
	"github.com/sandbox-lease/terraform-provider-sandbox/reconciler/api/document"
	"github.com/sandbox-lease/terraform-provider-sandbox/reconciler/api/exchange"
	"github.com/sandbox-lease/terraform-provider-sandbox/reconciler/api/rights"
	"github.com/sandbox-lease/terraform-provider-sandbox/reconciler/api/stream"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// Routes are the operations, and their dependencies besides the service.
type Routes struct {
	// Connector connects to agents; nil means that requests to agents are rejected.
	Connector service.Connector
	// Tokens manages the tokens of the ledger; nil means that there are none.
	Tokens service.Tokens
	// Charge counts a request of n items as n requests for the rate limits.
	Charge func(x *exchange.Exchange, n int)
	// AgentIdle is how long a connection to an agent may carry no bytes.
	AgentIdle time.Duration
	// Stream says how long streams wait.
	Stream stream.Config

	operations map[string]sandbox.Scope
}

// Register adds every operation to the document.
func (s *Routes) Register(d *document.Document) {
	s.operations = d.Operations
	s.registerEnvironments(d)
	s.registerLeases(d)
	s.registerExec(d)
	s.registerExecs(d)
	s.registerSessions(d)
	s.registerProcesses(d)
	s.registerAgents(d)
	s.registerFiles(d)
	s.registerWorkspaces(d)
	s.registerRuns(d)
	s.registerEvents(d)
	s.registerReports(d)
	s.registerStates(d)
	s.registerMaintenance(d)
	s.registerTokens(d)
}

// reply is a response with a JSON body.
type reply[T any] struct {
	Body T
}

func replyWith[T any](v T, err error) (*reply[T], error) {
	if err != nil {
		return nil, err
	}
	return &reply[T]{Body: v}, nil
}

// empty is a response without a body.
type empty struct{}

// unlimited is an input of requests that are open to every token. The response is filtered by the token's limit.
type unlimited struct{}

// Touches returns the target of the request.
func (unlimited) Touches() rights.Target { return rights.Nothing() }

// full reports whether a page of n entries reached its limit, so that more may follow.
func full(n, limit int) bool {
	if limit == 0 {
		limit = sandbox.MaxPage
	}
	return n > 0 && n >= limit
}

// notNil returns an empty list instead of nil, which is [] in JSON and not null.
func notNil[T any](list []T) []T {
	if list == nil {
		return []T{}
	}
	return list
}
