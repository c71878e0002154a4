package fake

import (
	"context"
	"maps"
	"slices"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/driver"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// broker is the LLM part of an environment's gateway. Its journal outlives the gateway's process; its settings do not.
type broker struct {
	settings    *driver.LLMSettings
	credentials map[string]driver.Credential
	lines       []driver.LLMLine
}

var (
	_ driver.LLMBroker        = (*Executor)(nil)
	_ driver.CredentialBroker = (*Executor)(nil)
)

// ServeLLM implements driver.LLMBroker.
func (x *gateways) ServeLLM(ctx context.Context, ref driver.EnvironmentRef, s driver.LLMSettings) error {
	if err := x.enter(ctx, OpServeLLM, ref.Instance); err != nil {
		return err
	}
	defer x.mu.Unlock()
	b, err := x.broker(ref)
	if err == nil {
		b.settings = &s
	}
	return err
}

// ServeCredentials implements driver.CredentialBroker.
func (x *gateways) ServeCredentials(ctx context.Context, ref driver.EnvironmentRef,
	credentials map[string]driver.Credential) error {
	if err := x.enter(ctx, OpServeCredentials, ref.Instance); err != nil {
		return err
	}
	defer x.mu.Unlock()
	b, err := x.broker(ref)
	if err == nil {
		b.credentials = maps.Clone(credentials)
	}
	return err
}

// Credentials returns the current credentials of an environment's gateway, by host.
func (x *gateways) Credentials(ref driver.EnvironmentRef) map[string]driver.Credential {
	x.mu.Lock()
	defer x.mu.Unlock()
	if b := x.brokers[ref]; b != nil {
		return b.credentials
	}
	return nil
}

// LLMCalls implements driver.LLMBroker.
func (x *gateways) LLMCalls(ctx context.Context, ref driver.EnvironmentRef,
	after sandbox.GatewayPosition) ([]driver.LLMLine, error) {
	if err := x.enter(ctx, OpLLMCalls, ref.Instance); err != nil {
		return nil, err
	}
	defer x.mu.Unlock()
	b, err := x.broker(ref)
	if err != nil {
		return nil, err
	}
	i := slices.IndexFunc(b.lines, func(l driver.LLMLine) bool { return l.After(after) })
	if i < 0 {
		return nil, nil
	}
	return slices.Clone(b.lines[i:min(len(b.lines), i+egressPage)]), nil
}

// broker returns an environment's broker. The caller must hold mu.
func (x *gateways) broker(ref driver.EnvironmentRef) (*broker, error) {
	if !x.installed[ref] {
		return nil, sandbox.Errorf(sandbox.NotFound, "fake: environment %s has no gateway", ref.EnvironmentID)
	}
	b := x.brokers[ref]
	if b == nil {
		b = &broker{}
		x.brokers[ref] = b
	}
	return b, nil
}

// LogLLM makes the gateway of an environment log calls, each as one line. It panics without a gateway.
func (x *gateways) LogLLM(ref driver.EnvironmentRef, calls ...sandbox.LLMCall) {
	x.mu.Lock()
	defer x.mu.Unlock()
	b, err := x.broker(ref)
	if err != nil {
		panic(err)
	}
	for _, c := range calls {
		at := sandbox.GatewayPosition{Run: 1, Line: int64(len(b.lines)) + 1}
		b.lines = append(b.lines, driver.LLMLine{GatewayPosition: at, LLMCall: c})
	}
}

// LLMSettings returns the current settings of an environment's gateway, nil without any.
func (x *gateways) LLMSettings(ref driver.EnvironmentRef) *driver.LLMSettings {
	x.mu.Lock()
	defer x.mu.Unlock()
	if b := x.brokers[ref]; b != nil {
		return b.settings
	}
	return nil
}

// RestartGateway restarts an environment's gateway, which loses its LLM settings.
func (x *gateways) RestartGateway(ref driver.EnvironmentRef) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if b := x.brokers[ref]; b != nil {
		b.settings, b.credentials = nil, nil
	}
}
