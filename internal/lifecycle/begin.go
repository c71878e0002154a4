package lifecycle

import (
	"context"
	"encoding/json"
	"maps"
	"sync"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/driver"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/ledger"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

func (c *Core) spawn(ctx context.Context, t *Task) (out outcome) {
	bounded, cancel := context.WithTimeout(ctx, SpawnTimeout)
	defer cancel()
	spec, err := c.buildSpec(t)
	if err == nil {
		spec.KeepDisk, err = c.keepsDisk(ctx, t)
	}
	if err == nil {
		err = t.On.Spawn(bounded, spec)
	}
	var own filling
	if err == nil {
		own, err = c.prepare(ctx, t)
	}
	if err == nil && !own.inUse {
		err = c.copyIn(bounded, t)
	}
	if err != nil {
		return outcome{err: err}
	}
	if t.Again || c.hooks.Initializes(&t.Row) { // it did not start just now: usage counts from when it did
		if obs, err := t.On.Inspect(bounded, t.Handle); err == nil {
			out.since = obs.StartedAt
		}
	}
	out.settles, out.err = FillAll(ctx, &t.Step, own.fills)
	return out
}

// assign wakes a sandbox from a pool, if it sleeps, and gives it to its lease. What it begins with is read meanwhile.
func (c *Core) assign(ctx context.Context, t *Task) (out outcome) {
	bounded, cancel := context.WithTimeout(ctx, restTimeout)
	defer cancel()
	var (
		own     filling
		readErr error
		reading sync.WaitGroup
	)
	reading.Go(func() { own, readErr = c.prepare(ctx, t) })
	if t.Awake {
		out.err = c.assignAwake(bounded, t)
	} else if out.started, out.err = t.On.Wake(bounded, t.Handle); out.err == nil {
		out.err = t.On.Assign(bounded, c.spec(t))
	}
	reading.Wait()
	if out.err == nil {
		out.err = readErr
	}
	if out.err == nil {
		if c.hooks.Initializes(&t.Row) {
			out.since = c.now()
		}
		out.settles, out.err = FillAll(ctx, &t.Step, own.fills)
	}
	return out
}

// assignAwake assigns a sandbox that waits awake. One that does not answer is given up: another takes its place sooner.
func (c *Core) assignAwake(ctx context.Context, t *Task) error {
	bounded, cancel := context.WithTimeout(ctx, answerTimeout)
	defer cancel()
	err := t.On.Assign(bounded, c.spec(t))
	if err != nil && bounded.Err() != nil && ctx.Err() == nil {
		return sandbox.Errorf(sandbox.Failed, "it does not answer: %w", err)
	}
	return err
}

// filling is what a sandbox is given once it runs for its lease. One that waits in a pool has none.
type filling struct {
	fills []Fill
	// inUse: an earlier try has begun to run code in the sandbox, so what that found stays as it left it.
	inUse bool
}

// prepare reads what a sandbox begins with.
func (c *Core) prepare(ctx context.Context, t *Task) (own filling, err error) {
	s := &t.Row
	if s.Pooled() {
		return own, nil
	}
	err = c.store.Read(ctx, func(tx *ledger.Tx) error {
		env, err := tx.KnownEnvironment(s.EnvironmentID)
		if err != nil {
			return err
		}
		if own.inUse, err = c.hooks.HasBegun(tx, s); err != nil {
			return err
		}
		own.fills, err = c.hooks.Prepare(tx, s, Beginning{Action: t.Action, Spec: env.Spec, InUse: own.inUse})
		return err
	})
	return own, err
}

// fillAgain fills a sandbox that runs and has begun: it gets what it may have lost in its sleep, or was changed
// meanwhile.
func (c *Core) fillAgain(ctx context.Context, t *Task) ([]Settle, error) {
	if t.Row.Pooled() {
		return nil, nil
	}
	var fills []Fill
	err := c.store.Read(ctx, func(tx *ledger.Tx) (err error) {
		fills, err = c.hooks.Prepare(tx, &t.Row, Beginning{Action: t.Action})
		return err
	})
	if err != nil {
		return nil, err
	}
	return FillAll(ctx, &t.Step, fills)
}

// keepsDisk reports whether a sandbox that is made now is to keep its disk.
func (c *Core) keepsDisk(ctx context.Context, t *Task) (keep bool, err error) {
	if !t.On.Capabilities().KeepsDisk {
		return false, nil
	}
	err = c.store.Read(ctx, func(tx *ledger.Tx) error {
		env, err := tx.KnownEnvironment(t.Row.EnvironmentID)
		if err == nil {
			keep = env.Spec.KeepDisk
		}
		return err
	})
	return keep, err
}

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
