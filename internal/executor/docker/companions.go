package docker

import (
	"context"
	"errors"
	"maps"
	"slices"

	"golang.org/x/sync/errgroup"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/channel"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/dockerapi"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/driver"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/executor/docker/engine"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/executor/docker/gateways"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/executor/docker/objects"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/executor/docker/templates"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/guest/wire"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/parallel"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// A companion is a container like a sandbox's: the guest is its process 1, with the sandbox's deadline, its own user,
// volumes, limits and channel. It joins the network namespace of the sandbox's container and shares nothing else with
// it. It has no access to the gateway's socket. It reaches other hosts as code in the sandbox does, through the proxy
// that the sandbox's process 1 offers on 127.0.0.1. Its process 1 ends with its program.

// hostname is empty for a companion, which shares its sandbox's hostname.
func hostname(spec driver.SandboxSpec) string {
	if spec.Companion != "" {
		return ""
	}
	return spec.EnvironmentID
}

// ownNetwork is the network of a container, unless the sandbox has its own network.
func ownNetwork(h driver.Handle) dockerapi.NetworkMode {
	if h.Companion == "" {
		return dockerapi.NetworkNone
	}
	return dockerapi.NetworkMode("container:" + objects.SandboxName(h.Sandbox()))
}

// companionSpec describes the container of a companion.
func companionSpec(spec driver.SandboxSpec, name string) driver.SandboxSpec {
	c := spec.Companions[name]
	own := spec
	own.Handle = spec.Handle.Of(name)
	own.Image, own.Resources = c.Image, c.Resources
	own.Env = make(map[string]string)
	if spec.Network == sandbox.NetworkRestricted {
		own.Env = gateways.ProxyVariables(false)
	}
	maps.Copy(own.Env, c.Env)
	own.Network, own.Egress, own.LLM = sandbox.NetworkNone, sandbox.Egress{}, nil // it uses the sandbox's network
	own.Mounts, own.Companions, own.Config = nil, nil, nil
	own.Confinement.User, own.Confinement.AllowRoot = "", false
	return own
}

// provisionCompanions creates the templates of companions and returns their references.
func (e *Executor) provisionCompanions(ctx context.Context, ref driver.EnvironmentRef, spec sandbox.EnvironmentSpec,
	p engine.Program) (references []string, err error) {
	for _, name := range spec.Companions.Names() {
		img, err := e.engine.GetImage(ctx, spec.Companions[name].Image, ref.Instance, spec.ImagePull)
		if err != nil {
			return nil, err
		}
		if err := checkImageVolumes(ref, "companions."+name+".image", img, false); err != nil {
			return nil, err
		}
		s := templates.Of(ref, img, p, spec.Confinement)
		if err := e.templates.Ensure(ctx, s); err != nil {
			return nil, err
		}
		if _, err := e.templates.AccountsOf(ctx, s); err != nil {
			return nil, err
		}
		references = append(references, s.Reference())
	}
	return references, nil
}

// spawnCompanions creates the containers of a sandbox's companions.
func (e *Executor) spawnCompanions(ctx context.Context, spec driver.SandboxSpec) error {
	names := spec.Companions.Names()
	e.containers.RememberCompanions(spec.Handle, names)
	return eachOf(ctx, names, func(ctx context.Context, name string) error {
		return e.spawnOne(ctx, companionSpec(spec, name))
	})
}

// assignCompanions gives the companions of a pool's sandbox to its lease.
func (e *Executor) assignCompanions(ctx context.Context, spec driver.SandboxSpec, ends wire.Ends) error {
	return eachOf(ctx, spec.Companions.Names(), func(ctx context.Context, name string) error {
		return e.assignOne(ctx, companionSpec(spec, name), ends)
	})
}

// eachOf calls do for all names concurrently, and returns the first error.
func eachOf(ctx context.Context, names []string, do func(ctx context.Context, name string) error) error {
	if len(names) == 0 {
		return nil
	}
	all, ctx := errgroup.WithContext(ctx)
	for _, name := range names {
		all.Go(func() error { return do(ctx, name) })
	}
	return all.Wait()
}

// existing calls do for each companion of a sandbox that exists.
func (e *Executor) existing(ctx context.Context, h driver.Handle, names []string,
	do func(ctx context.Context, h driver.Handle, c dockerapi.ContainerInspect) error) error {
	return eachOf(ctx, names, func(ctx context.Context, name string) error {
		c, err := e.containers.Inspect(ctx, h.Of(name))
		if err == nil {
			err = do(ctx, h.Of(name), c)
		}
		if sandbox.CodeOf(err) == sandbox.NotFound { // another program removed it: an observation shows that
			return nil
		}
		return err
	})
}

func (e *Executor) pauseCompanions(ctx context.Context, h driver.Handle, labels map[string]string) error {
	return e.existing(ctx, h, objects.CompanionNames(labels), e.pauseOne)
}

func (e *Executor) stopCompanions(ctx context.Context, h driver.Handle, labels map[string]string) error {
	return e.existing(ctx, h, objects.CompanionNames(labels),
		func(ctx context.Context, h driver.Handle, _ dockerapi.ContainerInspect) error {
			return e.stopOne(ctx, h)
		})
}

// thawCompanions unpauses the companions of a sandbox.
func (e *Executor) thawCompanions(ctx context.Context, h driver.Handle) error {
	names, err := e.containers.Companions(ctx, h)
	if sandbox.CodeOf(err) == sandbox.NotFound { // Wake returns this error
		return nil
	}
	if err != nil {
		return err
	}
	return e.existing(ctx, h, names, func(ctx context.Context, h driver.Handle, c dockerapi.ContainerInspect) error {
		defer e.channels.Existing(h, (*channel.Client).Resume)
		if engine.StateOf(c.State) != sandbox.StatePaused {
			return nil
		}
		err := e.engine.UnpauseContainer(ctx, objects.SandboxName(h))
		return e.unless(ctx, h, err, sandbox.StateRunning, sandbox.StateStopped)
	})
}

// startCompanions starts the companions of a sandbox that was just started. A companion that still runs has the network
// of the sandbox's previous boot, which no longer exists.
func (e *Executor) startCompanions(ctx context.Context, h driver.Handle, labels map[string]string) error {
	return e.existing(ctx, h, objects.CompanionNames(labels),
		func(ctx context.Context, h driver.Handle, c dockerapi.ContainerInspect) error {
			if s := engine.StateOf(c.State); s == sandbox.StateRunning || s == sandbox.StatePaused {
				if err := e.stopOne(ctx, h); err != nil {
					return err
				}
			}
			return e.start(ctx, h)
		})
}

// killCompanions removes the companions of a sandbox. If found, c is the sandbox's container and names them. Otherwise
// it finds them by their own labels.
func (e *Executor) killCompanions(ctx context.Context, h driver.Handle, c dockerapi.ContainerSummary,
	found bool) error {
	if h.Companion != "" {
		return nil
	}
	names := objects.CompanionNames(c.Labels)
	if found {
		e.containers.RememberCompanions(h, names) // for the next Kill, if this one leaves something
	} else {
		var err error
		if names, err = e.leftCompanions(ctx, h); err != nil {
			return err
		}
	}
	return parallel.Each(len(names), names, func(name *string) error {
		c, err := e.containers.Find(ctx, h.Of(*name))
		if err != nil && sandbox.CodeOf(err) != sandbox.NotFound {
			return err
		}
		tell, stop := e.telling(ctx, h.Of(*name))
		return e.killFound(ctx, h.Of(*name), c, err, tell, stop)
	})
}

// leftCompanions returns the names of companions with a container or a volume on the engine, and of those that this
// program knows. Volumes are created first, so they show every companion until a Kill removes them.
func (e *Executor) leftCompanions(ctx context.Context, h driver.Handle) ([]string, error) {
	labels := map[string]string{objects.LabelLedger: h.LedgerID, objects.LabelSandbox: h.SandboxID}
	containers, err := e.engine.ListContainers(ctx, "containers of sandbox", h.SandboxID, objects.Filter(labels))
	if err != nil {
		return nil, err
	}
	volumes, err := e.engine.ListVolumes(ctx, "volumes of sandbox", h.SandboxID, objects.Filter(labels))
	if err != nil {
		return nil, err
	}
	names := make(map[string]bool)
	for _, name := range e.containers.KnownCompanions(h) {
		names[name] = true
	}
	for _, c := range containers {
		names[c.Labels[objects.LabelCompanion]] = true
	}
	for _, v := range volumes {
		names[v.Labels[objects.LabelCompanion]] = true
	}
	delete(names, "") // the sandbox itself
	return slices.Sorted(maps.Keys(names)), nil
}

// ReviveCompanion implements driver.CompanionHost.
func (e *Executor) ReviveCompanion(ctx context.Context, h driver.Handle) error {
	of, err := e.containers.Inspect(ctx, h.Sandbox())
	if err != nil {
		return err
	}
	c, err := e.containers.Inspect(ctx, h)
	runs := err == nil && engine.StateOf(c.State) == sandbox.StateRunning
	if runs && engine.ParseTime(c.State.StartedAt).Before(engine.ParseTime(of.State.StartedAt)) {
		runs, err = false, e.stopOne(ctx, h)
	}
	if err == nil && !runs {
		e.channels.Leave(h) // it gets a new process 1
		err = e.start(ctx, h)
	}
	if sandbox.CodeOf(err) == sandbox.NotFound && !errors.Is(err, context.Canceled) {
		return sandbox.Errorf(sandbox.NotFound, "docker: companion %s of sandbox %s was removed and is not created again: %w",
			h.Companion, h.SandboxID, err).WithReason(sandbox.ReasonPartMissing)
	}
	return err
}

// StopCompanion implements driver.CompanionHost.
func (e *Executor) StopCompanion(ctx context.Context, h driver.Handle) error {
	err := e.stopOne(ctx, h)
	if sandbox.CodeOf(err) == sandbox.NotFound {
		return nil
	}
	return err
}

// CompanionProgram implements driver.CompanionHost.
func (e *Executor) CompanionProgram(ctx context.Context, h driver.Handle) ([]string, error) {
	c, err := e.containers.Inspect(ctx, h)
	if err != nil {
		return nil, err
	}
	img, err := e.engine.FindImage(ctx, c.Image, h.Instance)
	if err != nil || img.Config == nil {
		return nil, err
	}
	return slices.Concat(img.Config.Entrypoint, img.Config.Cmd), nil
}
