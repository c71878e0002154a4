// Package containers finds the containers of sandboxes and companions by their handles, and observes them.
package containers

import (
	"context"
	"slices"
	"strconv"
	"time"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/dockerapi"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/driver"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/executor/docker/engine"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/executor/docker/objects"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// Containers are the containers of sandboxes on an engine, with a cache.
type Containers struct {
	engine *engine.Engine

	companions known[[]string] // their names
	ids        known[string]
}

// New returns the containers of sandboxes on an engine.
func New(e *engine.Engine) *Containers { return &Containers{engine: e} }

// Find lists a sandbox's container. Errors: as for Inspect.
func (cs *Containers) Find(ctx context.Context, h driver.Handle) (dockerapi.ContainerSummary, error) {
	if err := objects.CheckHandle(h); err != nil {
		return dockerapi.ContainerSummary{}, err
	}
	name := objects.SandboxName(h)
	f := dockerapi.NewFilters(dockerapi.Filter("name", "^/"+name+"$"))
	found, err := cs.engine.ListContainers(ctx, "container", name, f)
	if err != nil {
		return dockerapi.ContainerSummary{}, err
	}
	for _, c := range found {
		if slices.Contains(c.Names, "/"+name) {
			return c, cs.engine.CheckLabels("container", name, c.Labels, objects.HandleLabels(h, objects.RoleOf(h)))
		}
	}
	return dockerapi.ContainerSummary{}, cs.absent(ctx, h)
}

// Inspect returns a sandbox's container. Errors: NotFound only if this is the handle's engine; Unavailable if it is
// another one; Conflict if another object has the container's name.
func (cs *Containers) Inspect(ctx context.Context, h driver.Handle) (dockerapi.ContainerInspect, error) {
	return cs.inspectWithin(ctx, h, engine.ReadLimit)
}

// inspectWithin is Inspect with a deadline.
func (cs *Containers) inspectWithin(ctx context.Context, h driver.Handle, limit time.Duration) (
	dockerapi.ContainerInspect, error) {
	if err := objects.CheckHandle(h); err != nil {
		return dockerapi.ContainerInspect{}, err
	}
	name := objects.SandboxName(h)
	c, err := cs.engine.ContainerWithin(ctx, name, limit)
	if sandbox.CodeOf(err) == sandbox.NotFound {
		return c, cs.absent(ctx, h)
	}
	if err == nil {
		err = cs.engine.CheckLabels("container", name, c.Config.Labels, objects.HandleLabels(h, objects.RoleOf(h)))
	}
	if err == nil {
		cs.Remember(h, c.ID)
	}
	return c, err
}

// absent is the error for a sandbox that the engine does not know: NotFound if this is the handle's engine, Unavailable
// if the engine cannot confirm that.
func (cs *Containers) absent(ctx context.Context, h driver.Handle) error {
	if err := cs.engine.Confirm(ctx, h.Instance); err != nil {
		return err
	}
	return sandbox.Errorf(sandbox.NotFound, "docker: sandbox %s: container %s does not exist on engine %s",
		h.SandboxID, objects.SandboxName(h), h.Instance).WithReason(sandbox.ReasonSandboxNotFound)
}

// DeadlineOf returns the deadline in the arguments of process 1, the zero time if there is none.
func DeadlineOf(entrypoint []string) time.Time {
	i := slices.Index(entrypoint, DeadlineFlag)
	if i < 0 || i+1 >= len(entrypoint) {
		return time.Time{}
	}
	micros, err := strconv.ParseInt(entrypoint[i+1], 10, 64)
	if err != nil {
		return time.Time{}
	}
	return time.UnixMicro(micros).UTC()
}

// WrongState is the error for an operation that needs a running sandbox.
func WrongState(h driver.Handle, s sandbox.State) error {
	return sandbox.Errorf(sandbox.Conflict, "docker: sandbox %s is %s: wake it first", h.SandboxID, s).
		WithReason(sandbox.ReasonInvalidState)
}

// HasMount reports whether a container was created with a mount at target.
func HasMount(c dockerapi.ContainerInspect, target string) bool {
	return c.HostConfig != nil &&
		slices.ContainsFunc(c.HostConfig.Mounts, func(m dockerapi.Mount) bool { return m.Target == target })
}

// ListsMount is HasMount for a listed container.
func ListsMount(c dockerapi.ContainerSummary, target string) bool {
	return slices.ContainsFunc(c.Mounts, func(m dockerapi.ContainerMountPoint) bool { return m.Destination == target })
}

// DeadlineFlag is the guest's argument with the sandbox's deadline by the ledger's clock, in Unix
// microseconds.
const DeadlineFlag = "-deadline"
