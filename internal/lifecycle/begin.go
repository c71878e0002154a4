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

// A sandbox begins for its lease by a spawn or, if a warm pool has one, by an assignment. A step reads the sandbox's
// contents from the ledger once. The sandbox is filled as soon as it runs, before it is ready.

// spawn creates a sandbox and fills it.
func (c *Core) spawn(ctx context.Context, t *Task) (out outcome) {
	bounded, cancel := context.WithTimeout(ctx, SpawnTimeout)
	defer cancel()
	own, err := c.contents(ctx, t)
	if err == nil {
		err = c.create(bounded, t, own)
	}
	if err != nil {
		return outcome{err: err}
	}
	if t.Again { // it started earlier, and usage counts from then
		if obs, err := t.On.Inspect(bounded, t.Handle); err == nil {
			out.since = obs.StartedAt
		}
	}
	c.begin(ctx, t, own, &out)
	return out
}

// begin fills a sandbox that runs and is not ready yet. If code runs in it before it is ready, its usage begins now.
func (c *Core) begin(ctx context.Context, t *Task, own contents, out *outcome) {
	if out.err = c.beginUsage(ctx, t, out); out.err == nil {
		out.settles, out.err = own.fill(ctx, &t.Step)
	}
}

// create creates a sandbox with the files that its environment copies from the host.
func (c *Core) create(ctx context.Context, t *Task, own contents) error {
	spec, err := c.fullSpec(t, own.Spec)
	if err == nil {
		err = t.On.Spawn(ctx, spec)
	}
	if err == nil && !own.InUse {
		err = c.copyIn(ctx, t)
	}
	return err
}

// assign wakes a sandbox from a pool, if it sleeps, and gives it to its lease. It reads the contents meanwhile.
func (c *Core) assign(ctx context.Context, t *Task) (out outcome) {
	bounded, cancel := context.WithTimeout(ctx, restTimeout)
	defer cancel()
	var (
		own     contents
		readErr error
		reading sync.WaitGroup
	)
	reading.Go(func() { own, readErr = c.contents(ctx, t) })
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
		c.begin(ctx, t, own, &out)
	}
	return out
}

// assignAwake assigns a sandbox that waits awake. It gives up a sandbox that does not answer, because another one takes
// its place sooner.
func (c *Core) assignAwake(ctx context.Context, t *Task) error {
	bounded, cancel := context.WithTimeout(ctx, answerTimeout)
	defer cancel()
	err := t.On.Assign(bounded, c.spec(t))
	if err != nil && bounded.Err() != nil && ctx.Err() == nil {
		return sandbox.Errorf(sandbox.Failed, "it does not answer: %w", err)
	}
	return err
}

// fillAgain fills a running sandbox that has begun, with what it may have lost in its sleep or what has changed since.
func (c *Core) fillAgain(ctx context.Context, t *Task) ([]Settle, error) {
	own, err := c.contents(ctx, t)
	if err != nil {
		return nil, err
	}
	return own.fill(ctx, &t.Step)
}

// contents is what a step fills a sandbox with. A sandbox that waits in a pool is not filled.
type contents struct {
	Beginning
	fills []Fill
}

// contents reads what a step fills its sandbox with, in one transaction.
func (c *Core) contents(ctx context.Context, t *Task) (own contents, err error) {
	err = c.store.Read(ctx, func(tx *ledger.Tx) (err error) {
		if own.Beginning, err = c.beginning(tx, t); err != nil || t.Row.Pooled() {
			return err
		}
		own.fills, err = c.hooks.Prepare(tx, &t.Row, own.Beginning)
		return err
	})
	return own, err
}

// beginning says why a step fills its sandbox.
func (c *Core) beginning(tx *ledger.Tx, t *Task) (Beginning, error) {
	b := Beginning{Action: t.Action}
	if !t.Action.Begins() {
		return b, nil
	}
	env, err := tx.KnownEnvironment(t.Row.EnvironmentID)
	if err != nil {
		return b, err
	}
	b.Spec = env.Spec
	b.InUse, err = c.hooks.HasBegun(tx, &t.Row)
	return b, err
}

// fill fills a running sandbox, outside of any transaction, and returns what records the results.
func (own contents) fill(ctx context.Context, t *Step) ([]Settle, error) {
	var settles []Settle
	for _, fill := range own.fills {
		settle, err := fill(ctx, t)
		if err != nil {
			return nil, err
		}
		if settle != nil {
			settles = append(settles, settle)
		}
	}
	return settles, nil
}

// fullSpec is spec with what only a spawn needs: the environment's choices that the row lacks, and what the sandbox
// gets from the host. The ledger only names the host's variables and paths. They are checked and read at each spawn.
func (c *Core) fullSpec(t *Task, env sandbox.EnvironmentSpec) (driver.SandboxSpec, error) {
	spec := c.spec(t)
	spec.KeepDisk = env.KeepDisk && t.On.Capabilities().KeepsDisk
	variables, err := c.host.Env(t.Row.Host)
	if err != nil {
		return spec, err
	}
	maps.Copy(variables, spec.Env) // variables that are set win
	spec.Env = variables
	spec.Mounts, err = c.host.Mounts(t.Row.Host)
	return spec, err
}

// spec returns everything that the backend needs to make a sandbox.
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

// configFile returns /workspace/config.json: what the code in a sandbox may know about its lease. It names agent and
// environment in camel case too, because JavaScript programs expect that.
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

// copyIn copies files of the host into a new sandbox, as its environment says. Copying again after a crash does no
// harm, because the sandbox is still unused.
func (c *Core) copyIn(ctx context.Context, t *Task) error {
	for _, copied := range t.Row.Host.Copies {
		dir, stream, err := c.host.Open(copied)
		if err != nil {
			return err
		}
		err = t.On.CopyTo(ctx, t.Handle, dir, stream)
		_ = stream.Close() // it was only read
		if err != nil {
			return err
		}
	}
	return nil
}
