package docker

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/channel"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/dockerapi"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/driver"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/executor/docker/containers"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/executor/docker/engine"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/executor/docker/objects"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/guest"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/parallel"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// stopGrace is the time that a sandbox gets to stop, in seconds. The guest gives its programs 8 of them.
const stopGrace = 10

// Sleep implements driver.Lifecycle.
func (e *Executor) Sleep(ctx context.Context, h driver.Handle, mode sandbox.SleepMode) error {
	if mode == sandbox.SleepStop {
		return e.stop(ctx, h)
	}
	c, err := e.containers.Inspect(ctx, h)
	if err != nil {
		return err
	}
	if err := e.pauseCompanions(ctx, h, c.Config.Labels); err != nil {
		return err
	}
	return e.pauseOne(ctx, h, c)
}

// pauseOne pauses a container. A paused or stopped container is success.
func (e *Executor) pauseOne(ctx context.Context, h driver.Handle, c dockerapi.ContainerInspect) error {
	if s := engine.StateOf(c.State); s == sandbox.StatePaused || s == sandbox.StateStopped {
		return nil
	}
	e.channels.Existing(h, (*channel.Client).Suspend)
	err := e.pause(ctx, h)
	if err != nil {
		e.channels.Existing(h, (*channel.Client).Resume)
	}
	return e.unless(ctx, h, err, sandbox.StatePaused, sandbox.StateStopped)
}

// stubborn is how long the executor retries to freeze a container.
const stubborn = 10 * time.Second

// pause freezes a container. Under load, a runtime on cgroup v1 gives up on a process that freezes slowly, and thaws
// the others.
func (e *Executor) pause(ctx context.Context, h driver.Handle) (err error) {
	r := engine.Change("pause container", objects.SandboxName(h), sandbox.ReasonStopFailed)
	_ = engine.Await(ctx, "the engine can freeze the sandbox", stubborn, func(context.Context) (bool, error) {
		err = e.engine.Do(ctx, r, func(ctx context.Context) error {
			return e.engine.API.ContainerPause(ctx, objects.SandboxName(h))
		})
		return !dockerapi.IsFreezeRefused(err), nil
	}) // err is now the engine's last answer
	return err
}

func (e *Executor) stop(ctx context.Context, h driver.Handle) error {
	c, err := e.containers.Inspect(ctx, h)
	if err != nil {
		return err
	}
	if err := e.stopOne(ctx, h); err != nil {
		return err
	}
	return e.stopCompanions(ctx, h, c.Config.Labels) // programs that use a companion end before it
}

// stopOne stops a container.
func (e *Executor) stopOne(ctx context.Context, h driver.Handle) error {
	grace := stopGrace
	r := engine.Change("stop container", objects.SandboxName(h), sandbox.ReasonStopFailed)
	r.Waits = true
	err := e.engine.Do(ctx, r, func(ctx context.Context) error {
		return e.engine.API.ContainerStop(ctx, objects.SandboxName(h), dockerapi.StopOptions{Timeout: &grace})
	})
	return e.unless(ctx, h, err, sandbox.StateStopped)
}

// Wake implements driver.Lifecycle. A caller waits for it, so it unpauses before it inspects. That is safe:
// the container's name contains the ids of its ledger and sandbox, and unpausing a container that is not
// paused changes nothing.
func (e *Executor) Wake(ctx context.Context, h driver.Handle) (started bool, err error) {
	if err := objects.CheckHandle(h); err != nil {
		return false, err
	}
	if err := e.thawCompanions(ctx, h); err != nil {
		return false, err
	}
	err = e.engine.UnpauseContainer(ctx, objects.SandboxName(h))
	e.channels.Existing(h, (*channel.Client).Resume)
	if err == nil {
		return false, e.gateways.EnsureKnown(ctx, h)
	}
	c, lookErr := e.containers.Inspect(ctx, h)
	switch {
	case lookErr != nil && sandbox.CodeOf(err) == sandbox.UnknownOutcome && sandbox.CodeOf(lookErr) != sandbox.NotFound:
		return false, err
	case lookErr != nil: // lookErr says whether this is another engine
		return false, lookErr
	}
	state := engine.StateOf(c.State)
	if state == sandbox.StatePaused {
		return false, err
	}
	if containers.HasMount(c, guest.EgressDir) {
		if err := e.gateways.Ask(ctx, h); err != nil {
			return false, err
		}
	}
	if state == sandbox.StateRunning { // it was awake, or another caller woke it first
		return false, nil
	}
	if err := e.start(ctx, h); err != nil {
		return false, err
	}
	return true, e.startCompanions(ctx, h, c.Config.Labels)
}

// unless ignores an error if the sandbox is in one of the wanted states: another caller was faster, and
// engines answer that with different codes.
func (e *Executor) unless(ctx context.Context, h driver.Handle, err error, wanted ...sandbox.State) error {
	if err == nil {
		return nil
	}
	c, lookErr := e.containers.Inspect(ctx, h)
	if lookErr != nil {
		if sandbox.CodeOf(lookErr) == sandbox.NotFound {
			return lookErr
		}
		return err
	}
	for _, s := range wanted {
		if engine.StateOf(c.State) == s {
			return nil
		}
	}
	return err
}

// Touch implements driver.Lifecycle: an engine keeps no time except the deadline, which is constant.
func (e *Executor) Touch(ctx context.Context, h driver.Handle, _ driver.Limits) (driver.Observation, error) {
	return e.Inspect(ctx, h)
}

// Kill implements driver.Lifecycle. It finds the container in a list, because an engine lists even containers that it
// cannot inspect. Meanwhile the channel ends process 1, so that no code keeps running if the engine is slow. If this
// program has not yet seen the sandbox, it waits for the list first: the container may be gone, or this may be another
// engine.
func (e *Executor) Kill(ctx context.Context, h driver.Handle) error {
	tell, stop := e.telling(ctx, h)
	defer stop()
	if e.containers.Knows(h) || e.channels.Met(h) {
		tell()
	}
	c, err := e.containers.Find(ctx, h) // only the sandbox's own engine returns NotFound
	if err != nil && sandbox.CodeOf(err) != sandbox.NotFound {
		return err
	}
	found := err == nil
	var killing sync.WaitGroup
	var failed error
	killing.Go(func() { failed = e.killCompanions(ctx, h, c, found) })
	err = e.killFound(ctx, h, c, err, tell, stop)
	killing.Wait()
	if err == nil {
		e.containers.Forget(h)
	}
	if err = errors.Join(err, failed); err == nil {
		e.containers.ForgetCompanions(h)
	}
	return err
}

// telling returns two functions: tell asks process 1 once to end its sandbox, and stop cancels that.
func (e *Executor) telling(ctx context.Context, h driver.Handle) (tell, stop func()) {
	ctx, cancel := context.WithCancel(ctx)
	var telling sync.WaitGroup
	tell = sync.OnceFunc(func() { telling.Go(func() { e.channels.EndNow(ctx, h) }) })
	return tell, func() { cancel(); telling.Wait() }
}

// killFound is Kill for one container, as containers.Find returned it. tell and stop are from telling.
func (e *Executor) killFound(ctx context.Context, h driver.Handle, c dockerapi.ContainerSummary, err error,
	tell, stop func()) error {
	if err == nil {
		if containers.ListsMount(c, guest.ChannelDir) && c.State == dockerapi.StateRunning {
			tell()
		}
		err = e.engine.RemoveContainer(ctx, c.ID)
	}
	stop() // process 1 is gone: EndNow would dial its channel again
	if err != nil && sandbox.CodeOf(err) != sandbox.NotFound {
		return err
	}
	// If the container is already gone, its mounts are unknown.
	had := func(target string) bool { return err != nil || containers.ListsMount(c, target) }
	var parts []func() error
	if h.Companion == "" && had(guest.EgressDir) {
		parts = append(parts, func() error { return e.gateways.Leave(ctx, h) })
	}
	if had(guest.ChannelDir) {
		e.channels.Leave(h)
		parts = append(parts, func() error { return e.relays.CloseChannel(ctx, h) })
	}
	if h.Companion == "" && (err != nil || !dockerapi.NetworkMode(c.HostConfig.NetworkMode).IsNone()) {
		parts = append(parts, func() error {
			return e.networks.Remove(ctx, objects.HandleLabels(h, objects.RoleNetwork))
		})
	}
	parts = append(parts, func() error { return e.removeVolumes(ctx, h, c, err == nil) })
	// A gateway or relay that is down must not keep the volumes: they may fill the disk that it needs to start.
	return parallel.Each(len(parts), parts, func(remove *func() error) error { return (*remove)() })
}

// removeVolumes removes the volumes of a container that is gone. If found, c has its mounts.
func (e *Executor) removeVolumes(ctx context.Context, h driver.Handle, c dockerapi.ContainerSummary, found bool) error {
	// Nothing that remains is running. So if many sandboxes end at the same time, the engine stops all of them first.
	if err := e.engine.RemoveContainerLate(ctx, objects.PopulatorName(h)); err != nil {
		return err // it uses the volumes
	}
	err := e.removeVolume(ctx, objects.WorkspaceVolume(h), h, objects.RoleWorkspace)
	if !found || containers.ListsMount(c, guest.LeaseDir) {
		err = errors.Join(err, e.removeVolume(ctx, objects.LeaseVolume(h), h, objects.RoleLease))
	}
	return errors.Join(err, e.removeImageVolumes(ctx, h, c, found),
		e.removeVolume(ctx, objects.DataVolume(h), h, objects.RoleData))
}

// removeVolume removes a volume of a sandbox, or of a companion.
func (e *Executor) removeVolume(ctx context.Context, name string, h driver.Handle, r objects.Role) error {
	return e.engine.RemoveVolume(ctx, name, objects.HandleLabels(h, r))
}
