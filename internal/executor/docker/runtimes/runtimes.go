// Package runtimes proves that a container runtime of an engine runs sandboxes, or says what is missing.
package runtimes

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/dockerapi"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/driver"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/executor/docker/containers"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/executor/docker/engine"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/executor/docker/objects"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/guest"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/guest/kernel"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/guest/wire"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// An engine knows only the name of a container runtime. So the first environment on an unusual runtime runs a command
// in a sandbox with the environment's settings. If that fails, a container with the same settings tries step by step
// what process 1 needs, and reports what is missing.

const (
	// proofLimit limits the command after its sandbox has started.
	proofLimit = 20 * time.Second
	// proofLife is the longest life of a trial sandbox whose creator died.
	proofLife = 5 * time.Minute
)

// Sandboxes creates sandboxes, runs commands in them and removes them.
type Sandboxes interface {
	Spawn(ctx context.Context, spec driver.SandboxSpec) error
	Exec(ctx context.Context, h driver.Handle, r sandbox.ExecRequest) (sandbox.ExecResult, error)
	Kill(ctx context.Context, h driver.Handle) error
}

// Prover proves each runtime of an engine once.
type Prover struct {
	engine     *engine.Engine
	containers *containers.Containers
	sandboxes  Sandboxes

	mu sync.Mutex // guards what follows
	// proved are the container runtimes that have run a sandbox's command.
	proved map[proof]bool
}

// New returns a prover that tries runtimes with sandboxes.
func New(e *engine.Engine, boxes *containers.Containers, sandboxes Sandboxes) *Prover {
	return &Prover{engine: e, containers: boxes, sandboxes: sandboxes, proved: make(map[proof]bool)}
}

// proof identifies a runtime that ran a command. A change of its arguments is detected immediately. A change of the
// program at its path is detected after a restart of the engine or of this program.
type proof struct {
	instance, engine string // the engine's id and version
	name, settings   string
	network          sandbox.NetworkMode
	guest            string
}

// Prove runs a command on the environment's runtime, once. The environment must be provisioned. Errors: Invalid, naming
// confinement.runtime, if the command fails.
func (pr *Prover) Prove(ctx context.Context, ref driver.EnvironmentRef,
	spec sandbox.EnvironmentSpec, p engine.Program) error {
	name := p.RuntimeOf(spec.Confinement)
	if engine.UsualRuntime(name) {
		return nil
	}
	info, err := pr.engine.InfoOf(ctx, ref.Instance)
	if err != nil {
		return err
	}
	r := info.Runtimes[name]
	if slices.ContainsFunc(r.Args, ignoresCgroups) {
		return unusable(ref, name, info.ID, "its runtimeArgs contain --ignore-cgroups, so nothing limits memory, "+
			"CPU time and processes: remove that from the engine's daemon.json, and reload the engine")
	}
	of := proof{
		instance: ref.Instance,
		engine:   info.ServerVersion,
		name:     name,
		settings: strings.Join(append([]string{r.Path}, r.Args...), "\x00"),
		network:  spec.Network,
		guest:    p.Hash,
	}
	pr.mu.Lock()
	proved := pr.proved[of]
	pr.mu.Unlock()
	if proved {
		return nil
	}
	found, err := pr.try(ctx, proofSpec(ref, spec))
	if err != nil {
		var w *wontRun
		if errors.As(err, &w) {
			return unusable(ref, name, info.ID, w.advice())
		}
		return err
	}
	pr.engine.Log.InfoContext(ctx, "docker: a container runtime has run a command", "runtime", name, "engine", info.ID,
		"kernel", found.Release)
	pr.mu.Lock()
	defer pr.mu.Unlock()
	pr.proved[of] = true
	return nil
}

func unusable(ref driver.EnvironmentRef, name, engine, why string) error {
	return sandbox.InvalidFields("environment "+ref.EnvironmentID, []sandbox.Field{{
		Name: "confinement.runtime", Problem: fmt.Sprintf("%q of engine %s cannot run sandboxes: %s", name, engine, why),
	}})
}

// ignoresCgroups reports whether an argument makes gVisor set no limits.
func ignoresCgroups(arg string) bool {
	flag, value, _ := strings.Cut(strings.TrimLeft(arg, "-"), "=")
	return flag == "ignore-cgroups" && value != "false"
}

// proofSpec is a sandbox of an environment without a lease.
func proofSpec(ref driver.EnvironmentRef, spec sandbox.EnvironmentSpec) driver.SandboxSpec {
	return driver.SandboxSpec{
		Handle: driver.Handle{LedgerID: ref.LedgerID, EnvironmentID: ref.EnvironmentID, Instance: ref.Instance,
			SandboxID: "proof-" + sandbox.RandomIDs(sandbox.LedgerIDLength)},
		AgentDID: "did:sandbox:proof", EnvironmentType: spec.Type, Image: spec.Image, Resources: spec.Resources,
		Network: spec.Network, Egress: spec.EgressRules(), LLM: spec.LLMProtocols(), Confinement: spec.Confinement,
		Env:      spec.Env,
		Deadline: time.Now().Add(proofLife), Config: []byte("{}"),
	}
}

// try creates a sandbox, runs a command in it, and removes it.
func (pr *Prover) try(ctx context.Context, spec driver.SandboxSpec) (found wire.Kernel, err error) {
	defer func() {
		killErr := pr.sandboxes.Kill(context.WithoutCancel(ctx), spec.Handle)
		if killErr != nil && sandbox.CodeOf(killErr) != sandbox.NotFound {
			err = errors.Join(err, killErr)
		}
	}()
	if err := pr.sandboxes.Spawn(ctx, spec); err != nil {
		switch sandbox.CodeOf(err) {
		case sandbox.Failed, sandbox.Invalid: // the engine's codes for a runtime that failed
			return found, &wontRun{cause: err}
		}
		return found, err
	}
	limited, cancel := context.WithTimeout(ctx, proofLimit)
	defer cancel()
	r, err := sandbox.ExecRequest{
		Command: []string{guest.Path, kernel.Command},
		Timeout: sandbox.Duration(proofLimit),
	}.Normalize()
	if err != nil {
		return found, err
	}
	res, err := pr.sandboxes.Exec(limited, spec.Handle, r)
	if err == nil && res.ExitCode != 0 {
		err = fmt.Errorf("a command ended with exit code %d: %s", res.ExitCode, bytes.TrimSpace(res.Stderr))
	}
	if err == nil {
		err = json.Unmarshal(res.Stdout, &found)
	}
	if err == nil || ctx.Err() != nil {
		return found, err
	}
	found, lookErr := pr.lacks(ctx, spec.Handle)
	return found, &wontRun{cause: errors.Join(err, lookErr), found: found}
}

// lacks runs a container with the settings of a sandbox that does not work, under the name of its populator. The
// container's program reports what is missing.
func (pr *Prover) lacks(ctx context.Context, h driver.Handle) (found wire.Kernel, err error) {
	c, err := pr.containers.Inspect(ctx, h)
	if err != nil {
		return found, err
	}
	config, name := *c.Config, objects.PopulatorName(h)
	config.Labels = objects.HandleLabels(h, objects.RolePopulator)
	config.Entrypoint = []string{guest.Path, kernel.Command, "-needs", "-socket", guest.ChannelSocket}
	if _, err = pr.engine.CreateContainer(ctx, "container", name, &config, c.HostConfig); err != nil {
		return found, err
	}
	if err = pr.engine.StartContainer(ctx, name); err != nil {
		return found, err
	}
	var ended dockerapi.ContainerInspect
	err = engine.Await(ctx, "container "+name+" ends", proofLimit, func(ctx context.Context) (_ bool, err error) {
		ended, err = pr.engine.Container(ctx, name)
		return err == nil && !ended.State.Running, err
	})
	if err != nil {
		return found, err
	}
	said, complaints, err := pr.engine.Output(ctx, name)
	if err == nil && json.Unmarshal(said, &found) != nil {
		err = fmt.Errorf("the diagnostic program ended with exit code %d, out of memory %t, and said %q: "+
			"a runtime with its own kernel may need more memory_mb and pids_limit", ended.State.ExitCode,
			ended.State.OOMKilled, bytes.TrimSpace(append(said, complaints...)))
	}
	return found, err
}
