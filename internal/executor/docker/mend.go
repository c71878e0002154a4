package docker

import (
	"context"
	"fmt"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/driver"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// Mend implements driver.Provisioner. What an environment has that can break is its gateway. One that
// works is left alone, also if it is of another release: reconcilers of two releases would take turns.
func (e *Executor) Mend(ctx context.Context, ref driver.EnvironmentRef, spec sandbox.EnvironmentSpec) (string, error) {
	if err := checkRef(ref); err != nil || spec.Network != sandbox.NetworkRestricted {
		return "", err
	}
	found, err := e.examineGateway(ctx, ref)
	if err != nil || found == "" {
		return found, err
	}
	return found, e.ensureGateway(ctx, ref, spec.EgressRules())
}

// Differences implements driver.Provisioner: nothing that an environment has here has settings of others' making.
func (e *Executor) Differences(context.Context, driver.EnvironmentRef, sandbox.EnvironmentSpec) ([]driver.Difference, error) {
	return nil, nil
}

// examineGateway returns what is wrong with an environment's gateway, "" when it works. One that hangs
// is removed: what it was told is in its volume.
func (e *Executor) examineGateway(ctx context.Context, ref driver.EnvironmentRef) (string, error) {
	name := gatewayName(ref)
	c, err := e.lookUp(ctx, name)
	if isCode(err, sandbox.NotFound) {
		return "gone", e.confirm(ctx, ref.Instance)
	}
	if err == nil {
		err = e.checkLabels("container", name, c.Config.Labels, environmentLabels(ref, roleGateway))
	}
	if err != nil {
		return "", err
	}
	switch state := stateOf(c.State); state {
	case sandbox.StateRunning:
	case sandbox.StatePaused:
		return string(state), e.removeContainer(ctx, c.ID)
	case sandbox.StateStopped:
		return fmt.Sprintf("stopped with exit code %d", c.State.ExitCode), nil
	default:
		return string(state), nil
	}
	limited, cancel := context.WithTimeout(ctx, readLimit)
	defer cancel()
	status, err := e.linkTo(ref).client.Status(limited)
	switch {
	case ctx.Err() != nil:
		return "", sandbox.Errorf(sandbox.Unavailable, "docker: gateway of environment %s: ask how it is: %w", ref.EnvironmentID, ctx.Err())
	case err != nil:
		return "without an answer", e.removeContainer(ctx, c.ID)
	case !status.HasPolicy:
		return "without rules", nil
	}
	return "", nil
}
