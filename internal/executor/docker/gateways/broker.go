package gateways

import (
	"context"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/driver"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/gateway/audit"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/gateway/control"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/gateway/credential"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/gateway/llm"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/guest"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

var (
	_ driver.LLMBroker        = Broker{}
	_ driver.CredentialBroker = Broker{}
)

// Broker gives gateways the keys of models and the credentials of hosts, and reads their records.
type Broker struct{ gateways *Gateways }

// Broker returns the broker of the gateways.
func (gs *Gateways) Broker() Broker { return Broker{gs} }

// LLMAddress is the address of the LLM routes in sandboxes. A route's name follows it.
const LLMAddress = "http://" + guest.ProxyAddress + llm.Prefix

// ServeLLM implements driver.LLMBroker. The keys pass through the gateway's control socket and are in no file.
func (b Broker) ServeLLM(ctx context.Context, ref driver.EnvironmentRef, s driver.LLMSettings) error {
	if _, err := b.gateways.volumeDir(ctx, ref); err != nil { // NotFound without a gateway
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
	return b.gateways.call(ctx, ref, "set the environment's LLM routes",
		func(ctx context.Context, c *control.Client) error { return c.SetLLM(ctx, cfg) })
}

// ServeCredentials implements driver.CredentialBroker. It works like ServeLLM.
func (b Broker) ServeCredentials(ctx context.Context, ref driver.EnvironmentRef,
	credentials map[string]driver.Credential) error {
	if _, err := b.gateways.volumeDir(ctx, ref); err != nil { // NotFound without a gateway
		return err
	}
	cfg := credential.Config{Credentials: make(map[string]credential.Credential, len(credentials))}
	for host, c := range credentials {
		cfg.Credentials[host] = credential.Credential(c)
	}
	return b.gateways.call(ctx, ref, "set the environment's credentials",
		func(ctx context.Context, c *control.Client) error { return c.SetCredentials(ctx, cfg) })
}

// LLMCalls implements driver.LLMBroker.
func (b Broker) LLMCalls(ctx context.Context, ref driver.EnvironmentRef,
	after sandbox.GatewayPosition) ([]driver.LLMLine, error) {
	if _, err := b.gateways.volumeDir(ctx, ref); err != nil { // NotFound without a gateway
		return nil, err
	}
	var entries []llm.Entry
	err := b.gateways.call(ctx, ref, "read the journal of LLM calls",
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
