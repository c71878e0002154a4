package docker

import (
	"context"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/driver"
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
	found, err := e.gateways.Examine(ctx, ref)
	if err != nil || found == "" {
		return found, err
	}
	return found, e.gateways.Ensure(ctx, ref, spec.EgressRules())
}

// Differences implements driver.Provisioner. It returns none: no resource here has settings that others could
// change.
func (e *Executor) Differences(context.Context, driver.EnvironmentRef,
	sandbox.EnvironmentSpec) ([]driver.Difference, error) {
	return nil, nil
}
