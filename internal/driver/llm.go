package driver

import (
	"context"
	"maps"
	"slices"
	"strings"

	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// CredentialBroker is implemented by an Executor whose gateways add credentials to the requests of sandboxes to some
// hosts. It starts a gateway that is down, but no sandbox.
type CredentialBroker interface {
	// ServeCredentials sets the credentials of an environment, by host. A gateway that restarts has none until the next
	// call. Errors: NotFound if the environment has no gateway.
	ServeCredentials(ctx context.Context, ref EnvironmentRef, credentials map[string]Credential) error
}

// Credential is a header of the requests to a host.
type Credential struct {
	Header string
	Value  sandbox.Secret
}

// LLMBroker is implemented by an Executor whose gateways call models for sandboxes. The gateways have the keys, which
// sandboxes do not have, and keep a journal of the calls. It starts a gateway that is down, but no sandbox.
type LLMBroker interface {
	// ServeLLM sets the routes of an environment. It does not touch routes that are already set. A gateway that restarts
	// has none until the next call. Errors: NotFound if the environment has no gateway.
	ServeLLM(ctx context.Context, ref EnvironmentRef, s LLMSettings) error
	// LLMCalls returns a page of the oldest lines of the journal after a position. The page is empty if there are none
	// yet. It tells the gateway that everything up to the position is recorded elsewhere. Errors: NotFound if the
	// environment has no gateway; Unavailable if the gateway does not answer.
	LLMCalls(ctx context.Context, ref EnvironmentRef, after sandbox.GatewayPosition) ([]LLMLine, error)
}

// LLMSettings are the LLM routes of an environment, and the limits of their cost.
type LLMSettings struct {
	// Account is the owner of the environment.
	Account string
	Routes  map[string]LLMKeyedRoute
	// Month is the month of Recorded and Cap ("2006-01", UTC).
	Month string
	// Recorded is what the ledger has recorded of the month's calls, by route.
	Recorded map[string]LLMRecorded
	// Cap limits the cost of all calls of the month together; nil means no budget.
	Cap *sandbox.NanoUSD
}

// LLMKeyedRoute is a route with its key.
type LLMKeyedRoute struct {
	sandbox.LLMRoute
	Key sandbox.Secret
}

// LLMRecorded is the recorded use of calls.
type LLMRecorded struct {
	Cost          sandbox.NanoUSD
	Calls, Tokens int64
}

// LLMLine is a line of the journal: the beginning or the end of a call.
type LLMLine struct {
	sandbox.GatewayPosition
	sandbox.LLMCall
}

// llmPlaceholder is the key for clients that insist on one. It grants no access.
const llmPlaceholder = "sandbox"

// LLMVariables are the variables that point clients to LLM routes below an address. Each route has LLM_<ROUTE>_URL. The
// variables that the clients of an API read point to its first route by name.
func LLMVariables(address string, routes map[string]sandbox.LLMAPI) map[string]string {
	env := make(map[string]string)
	first := make(map[sandbox.LLMAPI]string)
	for _, name := range slices.Sorted(maps.Keys(routes)) {
		base := address + name
		env["LLM_"+strings.ToUpper(strings.ReplaceAll(name, "-", "_"))+"_URL"] = base
		if _, ok := first[routes[name]]; !ok {
			first[routes[name]] = base
		}
	}
	for api, base := range first {
		switch api {
		case sandbox.LLMOpenAI:
			env["OPENAI_BASE_URL"], env["OPENAI_API_KEY"] = base+"/v1", llmPlaceholder
		case sandbox.LLMAnthropic:
			env["ANTHROPIC_BASE_URL"], env["ANTHROPIC_API_KEY"] = base, llmPlaceholder
		case sandbox.LLMOpenRouter:
			env["OPENROUTER_BASE_URL"], env["OPENROUTER_API_KEY"] = base+"/v1", llmPlaceholder
		}
	}
	return env
}
