package gateways

import (
	"context"
	"fmt"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/driver"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/executor/docker/engine"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/executor/docker/objects"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// Examine returns the problem of an environment's gateway, or "". It removes a gateway that hangs. The gateway's
// configuration survives in its volume.
func (gs *Gateways) Examine(ctx context.Context, ref driver.EnvironmentRef) (string, error) {
	name := objects.GatewayName(ref)
	c, err := gs.engine.Container(ctx, name)
	if sandbox.CodeOf(err) == sandbox.NotFound {
		return "gone", gs.engine.Confirm(ctx, ref.Instance)
	}
	if err == nil {
		err = gs.engine.CheckLabels("container", name, c.Config.Labels, objects.EnvironmentLabels(ref, objects.RoleGateway))
	}
	if err != nil {
		return "", err
	}
	switch state := engine.StateOf(c.State); state {
	case sandbox.StateRunning:
	case sandbox.StatePaused:
		return string(state), gs.engine.RemoveContainer(ctx, c.ID)
	case sandbox.StateStopped:
		return fmt.Sprintf("stopped with exit code %d", c.State.ExitCode), nil
	default:
		return string(state), nil
	}
	limited, cancel := context.WithTimeout(ctx, engine.ReadLimit)
	defer cancel()
	status, err := gs.clientOf(ref).Status(limited)
	switch {
	case ctx.Err() != nil:
		return "", sandbox.Errorf(sandbox.Unavailable, "docker: gateway of environment %s: check its state: %w",
			ref.EnvironmentID, ctx.Err())
	case err != nil:
		return "does not answer", gs.engine.RemoveContainer(ctx, c.ID)
	case !status.HasPolicy:
		return "has no rules", nil
	}
	return "", nil
}
