package engine

import (
	"bytes"
	"context"
	"errors"
	"strings"
	"time"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/dockerapi"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/driver"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/executor/docker/objects"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// CreateContainer creates a container and returns its id. what names the kind of container in errors.
func (e *Engine) CreateContainer(ctx context.Context, what, name string, config *dockerapi.ContainerConfig,
	host *dockerapi.HostConfig) (id string, err error) {
	made, err := Fetch(ctx, e, Change("create "+what, name, sandbox.ReasonCreationFailed),
		func(ctx context.Context) (dockerapi.ContainerCreateResponse, error) {
			return e.API.ContainerCreate(ctx, config, host, nil, nil, name)
		})
	return made.ID, err
}

// StartContainer starts a container. A running container is success.
func (e *Engine) StartContainer(ctx context.Context, name string) error {
	return e.Do(ctx, Change("start container", name, sandbox.ReasonStartFailed), func(ctx context.Context) error {
		return e.API.ContainerStart(ctx, name, dockerapi.StartOptions{})
	})
}

// UnpauseContainer unpauses a container. If it is not paused, the error's code depends on the engine.
func (e *Engine) UnpauseContainer(ctx context.Context, name string) error {
	return e.Do(ctx, Change("unpause container", name, sandbox.ReasonStartFailed), func(ctx context.Context) error {
		return e.API.ContainerUnpause(ctx, name)
	})
}

// Container inspects a container by name or id.
func (e *Engine) Container(ctx context.Context, name string) (dockerapi.ContainerInspect, error) {
	return e.ContainerWithin(ctx, name, ReadLimit)
}

// ContainerWithin inspects a container by name or id with a deadline.
func (e *Engine) ContainerWithin(ctx context.Context, id string,
	limit time.Duration) (c dockerapi.ContainerInspect, err error) {
	r := Read("inspect container", id)
	r.Limit = limit
	return Fetch(ctx, e, r, func(ctx context.Context) (dockerapi.ContainerInspect, error) {
		return e.API.ContainerInspect(ctx, id)
	})
}

// Hangs reports whether err means that the engine did not answer, as opposed to a caller that gave up.
func Hangs(ctx context.Context, err error) bool {
	return ctx.Err() == nil && errors.Is(err, context.DeadlineExceeded)
}

// StateOf converts the state of a container to that of a sandbox.
func StateOf(s *dockerapi.ContainerState) sandbox.State {
	switch {
	case s.Paused:
		return sandbox.StatePaused
	case s.Running:
		return sandbox.StateRunning
	case s.Status == dockerapi.StateCreated:
		return sandbox.StateCreated
	case s.Status == dockerapi.StateRemoving:
		return sandbox.StateRemoving
	default:
		return sandbox.StateStopped
	}
}

// Output returns the output of a container.
func (e *Engine) Output(ctx context.Context, name string) (stdout, stderr []byte, err error) {
	var out, problems bytes.Buffer
	err = e.Do(ctx, Read("read the output of", name), func(ctx context.Context) error {
		logs, err := e.API.ContainerLogs(ctx, name, dockerapi.LogsOptions{ShowStdout: true, ShowStderr: true})
		if err != nil {
			return err
		}
		defer logs.Close()
		out.Reset()
		problems.Reset()
		_, err = dockerapi.StdCopy(&out, &problems, logs)
		return err
	})
	return out.Bytes(), problems.Bytes(), err
}

// ListContainers lists containers, running or not. what and id appear in errors, such as "containers of ledger" and the
// ledger's id.
func (e *Engine) ListContainers(ctx context.Context, what, id string, f dockerapi.Filters) (
	[]dockerapi.ContainerSummary, error) {
	return Fetch(ctx, e, Read("list "+what, id), func(ctx context.Context) ([]dockerapi.ContainerSummary, error) {
		return e.API.ContainerList(ctx, dockerapi.ContainerListOptions{All: true, Filters: f})
	})
}

// ContainersOf lists a ledger's containers with a role, running or not.
func (e *Engine) ContainersOf(ctx context.Context, ledgerID string, r objects.Role) ([]driver.Dependent, error) {
	f := objects.Filter(map[string]string{objects.LabelLedger: ledgerID, objects.LabelRole: string(r)})
	found, err := e.ListContainers(ctx, string(r)+"s of ledger", ledgerID, f)
	var list []driver.Dependent
	for _, c := range found {
		name := c.ID
		if len(c.Names) > 0 {
			name = strings.TrimPrefix(c.Names[0], "/")
		}
		list = append(list, objects.Dependent(name, c.Labels, time.Unix(c.Created, 0)))
	}
	return list, err
}

// RemovalLimit limits the wait for a removal in progress.
const RemovalLimit = 2 * time.Minute

// RemoveContainer removes a container and its anonymous volumes, and returns nil once it is gone.
func (e *Engine) RemoveContainer(ctx context.Context, id string) error {
	return e.remove(ctx, Change("remove container", id, sandbox.ReasonRemovalFailed))
}

// RemoveContainerLate is RemoveContainer with a late request.
func (e *Engine) RemoveContainerLate(ctx context.Context, id string) error {
	r := Change("remove container", id, sandbox.ReasonRemovalFailed)
	r.Late = true
	return e.remove(ctx, r)
}

// remove is RemoveContainer with a given request.
func (e *Engine) remove(ctx context.Context, r Request) error {
	id := r.object
	err := e.Do(ctx, r, func(ctx context.Context) error {
		return e.API.ContainerRemove(ctx, id, dockerapi.ContainerRemoveOptions{Force: true, RemoveVolumes: true})
	})
	switch {
	case sandbox.CodeOf(err) == sandbox.NotFound:
		return nil
	case sandbox.CodeOf(err) == sandbox.Conflict: // its removal is in progress
		return Await(ctx, "container "+id+" is removed", RemovalLimit, func(ctx context.Context) (bool, error) {
			_, err := e.Container(ctx, id)
			if sandbox.CodeOf(err) == sandbox.NotFound {
				return true, nil
			}
			return false, err
		})
	default:
		return err
	}
}
