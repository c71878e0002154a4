package docker

import (
	"context"
	"strings"

	"golang.org/x/sync/errgroup"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/dockerapi"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/driver"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/executor/docker/objects"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/executor/docker/templates"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// Provision implements driver.Provisioner. It creates the environment's template image and guest volume, and its
// ledger's relay. It creates a gateway if the network is restricted or the environment has LLM routes. An unusual
// container runtime must first run a command.
func (e *Executor) Provision(ctx context.Context, ref driver.EnvironmentRef, spec sandbox.EnvironmentSpec) error {
	if err := e.check(ctx, ref, spec); err != nil {
		return err
	}
	img, err := e.engine.GetImage(ctx, spec.Image, ref.Instance, spec.ImagePull)
	if err != nil {
		return err
	}
	if err := checkImageVolumes(ref, "image", img, spec.Snapshot != nil); err != nil {
		return err
	}
	program, err := e.engine.GuestFor(ctx, ref.Instance)
	if err != nil {
		return err
	}
	s := templates.Of(ref, img, program, spec.Confinement)
	// While the environment has a volume, the removal of another environment keeps the relay.
	if err := e.engine.EnsureVolume(ctx, s.GuestVolume(), objects.EnvironmentLabels(ref, objects.RoleGuest)); err != nil {
		return err
	}
	var parts errgroup.Group
	parts.Go(func() error { return e.relays.Renew(ctx, ref.LedgerID, ref.Instance) })
	parts.Go(func() error { return e.provisionTemplates(ctx, ref, spec, s) })
	if err := parts.Wait(); err != nil {
		return err
	}
	if spec.UsesGateway() { // otherwise existing sandboxes keep their egress path
		if err := e.gateways.Ensure(ctx, ref, spec.EgressRules()); err != nil {
			return err
		}
	}
	return e.runtimes.Prove(ctx, ref, spec, program)
}

// provisionTemplates creates the templates that fill the volumes of sandboxes and companions.
func (e *Executor) provisionTemplates(ctx context.Context, ref driver.EnvironmentRef, spec sandbox.EnvironmentSpec,
	s templates.Template) error {
	if err := e.templates.Ensure(ctx, s); err != nil {
		return err
	}
	if _, err := e.templates.AccountsOf(ctx, s); err != nil { // so that no spawn has to read them
		return err
	}
	keep, err := e.provisionCompanions(ctx, ref, spec, s.Guest)
	if err != nil {
		return err
	}
	if err := e.engine.RemoveImages(ctx, ref, objects.RoleTemplate, append(keep, s.Reference())...); err != nil {
		e.engine.Log.WarnContext(ctx, "docker: templates of earlier images could not be removed; they are removed with "+
			"their environment", "environment", ref.EnvironmentID, "error", err)
	}
	return nil
}

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

// Differences implements driver.Provisioner. It returns none: no resource here has settings that another program could
// change.
func (e *Executor) Differences(context.Context, driver.EnvironmentRef,
	sandbox.EnvironmentSpec) ([]driver.Difference, error) {
	return nil, nil
}

// Deprovision implements driver.Provisioner. It also removes the relay if the ledger has no other environment on the
// engine.
func (e *Executor) Deprovision(ctx context.Context, ref driver.EnvironmentRef) error {
	if err := objects.CheckRef(ref); err != nil {
		return err
	}
	if err := e.engine.Confirm(ctx, ref.Instance); err != nil {
		return err
	}
	if err := e.removePopulators(ctx, ref); err != nil {
		return err
	}
	if err := e.networks.Remove(ctx, objects.EnvironmentLabels(ref, objects.RoleNetwork)); err != nil { // a crash left it
		return err
	}
	if err := e.removeGuestVolumes(ctx, ref); err != nil { // first, so that nothing brings the gateway back
		return err
	}
	if err := e.gateways.Remove(ctx, ref); err != nil {
		return err
	}
	if err := e.engine.RemoveImages(ctx, ref, objects.RoleTemplate); err != nil {
		return err
	}
	return e.relays.Remove(ctx, ref.LedgerID, ref.Instance)
}

// removePopulators removes populators that a crash left behind. Errors: Conflict while sandboxes exist.
func (e *Executor) removePopulators(ctx context.Context, ref driver.EnvironmentRef) error {
	f := dockerapi.NewFilters(dockerapi.Filter("label", objects.LabelLedger+"="+ref.LedgerID),
		dockerapi.Filter("label", objects.LabelEnvironment+"="+ref.EnvironmentID))
	found, err := e.engine.ListContainers(ctx, "containers of environment", ref.EnvironmentID, f)
	if err != nil {
		return err
	}
	var inUse []string
	for _, c := range found {
		switch objects.Role(c.Labels[objects.LabelRole]) {
		case objects.RolePopulator:
			if err := e.engine.RemoveContainer(ctx, c.ID); err != nil {
				return err
			}
		case objects.RoleGateway: // removed with the environment
		default:
			inUse = append(inUse, c.Labels[objects.LabelSandbox])
		}
	}
	if len(inUse) > 0 {
		return sandbox.Errorf(sandbox.Conflict, "docker: environment %s still has sandboxes: %s",
			ref.EnvironmentID, strings.Join(inUse, ", ")).
			WithReason(sandbox.ReasonActiveLeases)
	}
	return nil
}

// removeGuestVolumes removes the guest volumes: one for each release that created sandboxes in the environment.
func (e *Executor) removeGuestVolumes(ctx context.Context, ref driver.EnvironmentRef) error {
	found, err := e.engine.VolumesOf(ctx, ref, objects.RoleGuest)
	if err != nil {
		return err
	}
	for _, v := range found {
		if err := e.engine.RemoveVolume(ctx, v.Name, objects.EnvironmentLabels(ref, objects.RoleGuest)); err != nil {
			return err
		}
	}
	return nil
}
