package docker

import (
	"context"
	"maps"
	"slices"
	"strings"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/driver"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/gateway/audit"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/gateway/control"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/gateway/credential"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/gateway/llm"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/guest"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

var (
	_ driver.LLMBroker        = (*Executor)(nil)
	_ driver.CredentialBroker = (*Executor)(nil)
)

// ServeLLM implements driver.LLMBroker. The keys go through the gateway's control socket, and are in no file.
func (e *Executor) ServeLLM(ctx context.Context, ref driver.EnvironmentRef, s driver.LLMSettings) error {
	if _, err := e.egressDir(ctx, ref); err != nil { // NotFound without a gateway
		return err
	}
	cfg := llm.Config{
		Environment: ref.EnvironmentID, Account: s.Account, Routes: make(map[string]llm.Route, len(s.Routes)),
		Month: s.Month, Recorded: make(map[string]llm.Used, len(s.Recorded)), Cap: s.Cap,
	}
	for name, r := range s.Routes {
		cfg.Routes[name] = llm.Route{LLMRoute: r.LLMRoute, Key: r.Key}
	}
	for route, used := range s.Recorded {
		cfg.Recorded[route] = llm.Used{USD: used.Cost, Requests: used.Calls, Tokens: used.Tokens}
	}
	return e.callGateway(ctx, ref, "set the environment's LLM routes",
		func(ctx context.Context, c *control.Client) error { return c.SetLLM(ctx, cfg) })
}

// ServeCredentials implements driver.CredentialBroker, in the way of ServeLLM.
func (e *Executor) ServeCredentials(ctx context.Context, ref driver.EnvironmentRef,
	credentials map[string]driver.Credential) error {
	if _, err := e.egressDir(ctx, ref); err != nil { // NotFound without a gateway
		return err
	}
	cfg := credential.Config{Credentials: make(map[string]credential.Credential, len(credentials))}
	for host, c := range credentials {
		cfg.Credentials[host] = credential.Credential(c)
	}
	return e.callGateway(ctx, ref, "set the environment's credentials",
		func(ctx context.Context, c *control.Client) error { return c.SetCredentials(ctx, cfg) })
}

// LLMCalls implements driver.LLMBroker.
func (e *Executor) LLMCalls(ctx context.Context, ref driver.EnvironmentRef,
	after sandbox.GatewayPosition) ([]driver.LLMLine, error) {
	if _, err := e.egressDir(ctx, ref); err != nil { // NotFound without a gateway
		return nil, err
	}
	var entries []llm.Entry
	err := e.callGateway(ctx, ref, "read the journal of LLM calls",
		func(ctx context.Context, c *control.Client) (err error) {
			entries, err = c.LLMCalls(ctx, audit.Position(after))
			return err
		})
	if err != nil {
		return nil, err
	}
	lines := make([]driver.LLMLine, len(entries))
	for i, entry := range entries {
		lines[i] = driver.LLMLine{GatewayPosition: sandbox.GatewayPosition(entry.Position), LLMCall: entry.Call}
	}
	return lines, nil
}

// llmPlaceholder is the key that clients send if they insist on one. It opens nothing.
const llmPlaceholder = "sandbox"

// llmEnv are the variables that point clients to the LLM routes: LLM_<ROUTE>_URL for each route, and those that the
// clients of each API read, for its first route by name.
func llmEnv(routes map[string]sandbox.LLMAPI) map[string]string {
	env := make(map[string]string)
	first := make(map[sandbox.LLMAPI]string)
	for _, name := range slices.Sorted(maps.Keys(routes)) {
		base := "http://" + guest.ProxyAddress + llm.Prefix + name
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
