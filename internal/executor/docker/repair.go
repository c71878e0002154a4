package docker

import (
	"context"
	"fmt"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/driver"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/executor/docker/engine"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/executor/docker/objects"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// Repair implements driver.Provisioner. The only part of an environment that can break is its gateway. A
// gateway that works is kept even if it is of another release; otherwise reconcilers of two releases would
// replace it in turn.
func (e *Executor) Repair(ctx context.Context, ref driver.EnvironmentRef,
	spec sandbox.EnvironmentSpec) (string, error) {
	if err := objects.CheckRef(ref); err != nil || !spec.UsesGateway() {
		return "", err
	}
	found, err := e.examineGateway(ctx, ref)
	if err != nil || found == "" {
		return found, err
	}
	return found, e.ensureGateway(ctx, ref, spec.EgressRules())
}

// Differences implements driver.Provisioner. It returns none: no resource here has settings that others could
// change.
func (e *Executor) Differences(context.Context, driver.EnvironmentRef,
	sandbox.EnvironmentSpec) ([]driver.Difference, error) {
	return nil, nil
}

// examineGateway returns the problem of an environment's gateway, "" if it works. It removes a gateway that
// hangs; the gateway's configuration is in its volume.
func (e *Executor) examineGateway(ctx context.Context, ref driver.EnvironmentRef) (string, error) {
	name := objects.GatewayName(ref)
	c, err := e.engine.Container(ctx, name)
	if sandbox.CodeOf(err) == sandbox.NotFound {
		return "gone", e.engine.Confirm(ctx, ref.Instance)
	}
	if err == nil {
		err = e.engine.CheckLabels("container", name, c.Config.Labels, objects.EnvironmentLabels(ref, objects.RoleGateway))
	}
	if err != nil {
		return "", err
	}
	switch state := engine.StateOf(c.State); state {
	case sandbox.StateRunning:
	case sandbox.StatePaused:
		return string(state), e.engine.RemoveContainer(ctx, c.ID)
	case sandbox.StateStopped:
		return fmt.Sprintf("stopped with exit code %d", c.State.ExitCode), nil
	default:
		return string(state), nil
	}
	limited, cancel := context.WithTimeout(ctx, engine.ReadLimit)
	defer cancel()
	status, err := e.gatewayClientOf(ref).client.Status(limited)
	switch {
	case ctx.Err() != nil:
		return "", sandbox.Errorf(sandbox.Unavailable, "docker: gateway of environment %s: check its state: %w",
			ref.EnvironmentID, ctx.Err())
	case err != nil:
		return "does not answer", e.engine.RemoveContainer(ctx, c.ID)
	case !status.HasPolicy:
		return "has no rules", nil
	}
	return "", nil
}
