package lifecycle

import (
	"context"
	"encoding/json"
	"maps"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/driver"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/ledger"
)

// buildSpec is spec with what the sandbox gets of the host, which the ledger only names: it is read, and
// must be allowed, when the sandbox is made.
func (c *Core) buildSpec(t *Task) (driver.SandboxSpec, error) {
	spec := c.spec(t)
	env, err := c.host.Env(t.Row.Host)
	if err != nil {
		return spec, err
	}
	maps.Copy(env, spec.Env) // what is set wins
	spec.Env = env
	spec.Mounts, err = c.host.Mounts(t.Row.Host)
	return spec, err
}

// copyIn copies what its environment gives each sandbox into one that was just made. Copying again,
// after a crash, does no harm: it is still unused.
func (c *Core) copyIn(ctx context.Context, t *Task) error {
	for _, copied := range t.Row.Host.Copies {
		dir, stream, err := c.host.Open(copied)
		if err != nil {
			return err
		}
		err = t.On.CopyTo(ctx, t.Handle, dir, stream)
		_ = stream.Close() // only read
		if err != nil {
			return err
		}
	}
	return nil
}

// spec is everything the backend needs to make a sandbox.
func (c *Core) spec(t *Task) driver.SandboxSpec {
	s := &t.Row
	var config []byte
	if !s.Pooled() {
		config = configFile(s)
	}
	return driver.SandboxSpec{
		Handle: t.Handle, LeaseID: s.Lease(), Generation: s.Generation, AgentDID: s.AgentDID,
		EnvironmentType: s.EnvironmentType, Image: s.Image, Resources: s.Resources(), Network: s.Network, Egress: s.Egress,
		LLM: s.LLM, Companions: s.Companions,
		SleepMode: s.SleepMode, Env: s.Env, Confinement: s.Confinement, Deadline: s.Deadline().Time(),
		AsOf: c.store.Now(), Config: config, Labels: s.Labels,
		Limits: s.Terms.Limits(), ExpiryConditions: s.ExpiryConditions, Version: c.version,
	}
}

// configFile is /workspace/config.json: what the code in a sandbox may know about its lease. It says for
// whom the sandbox is in two spellings, because programs for JavaScript expect the second.
func configFile(s *ledger.Sandbox) []byte {
	b, err := json.MarshalIndent(map[string]any{
		"agentDid": s.AgentDID, "environmentId": s.EnvironmentID, "environmentType": s.EnvironmentType,
		"agent_did": s.AgentDID, "environment_id": s.EnvironmentID, "environment_type": s.EnvironmentType,
		"lease_id": s.Lease(), "generation": s.Generation, "sandbox_id": s.ID,
		"leased_at": s.LeasedAt.Time(), "ends_at_latest": s.Deadline().Time(),
		"expiry_conditions": s.ExpiryConditions, "allowed_root_directory": "/workspace",
	}, "", "  ")
	if err != nil {
		panic(err) // strings, numbers and times always encode
	}
	return append(b, '\n')
}
