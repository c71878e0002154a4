package templates

import (
	"context"
	"errors"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/dockerapi"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/driver"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/executor/docker/engine"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/executor/docker/objects"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/guest"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// Discard removes a used populator. If that fails, Kill removes it.
func (ts *Templates) Discard(ctx context.Context, h driver.Handle) {
	if err := ts.engine.RemoveContainer(ctx, objects.PopulatorName(h)); err != nil {
		ts.engine.Log.WarnContext(ctx, "docker: a populator could not be removed; it is removed with its sandbox",
			"sandbox", h.SandboxID, "error", err)
	}
}

// Fill fills the volumes of a sandbox from the template. The engine does it when a populator is created; the
// caller removes the populator. The engine only fills empty volumes, so a repetition is harmless. Errors: ErrMade.
func (ts *Templates) Fill(ctx context.Context, h driver.Handle, s Template, mounts []dockerapi.Mount) error {
	err := ts.createPopulator(ctx, h, s, mounts)
	if sandbox.CodeOf(err) == sandbox.NotFound { // the template was removed, or the image changed after Provision
		if err = ts.Ensure(ctx, s); err == nil {
			err = ts.createPopulator(ctx, h, s, mounts)
		}
	}
	return err
}

// ErrMade: another caller has created the container, and so the volumes.
var ErrMade = errors.New("the container was created meanwhile")

// createPopulator creates a populator. Its name ensures that only one caller fills the volumes at a time. An
// existing one, from another caller or a crash, has done its work.
func (ts *Templates) createPopulator(ctx context.Context, h driver.Handle, s Template,
	mounts []dockerapi.Mount) error {
	name := objects.PopulatorName(h)
	return engine.Await(ctx, "carrier "+name+" is gone", engine.ChangeLimit, func(ctx context.Context) (bool, error) {
		_, err := ts.engine.Container(ctx, objects.SandboxName(h))
		if err == nil {
			return false, ErrMade
		}
		if sandbox.CodeOf(err) != sandbox.NotFound {
			return false, err
		}
		_, err = ts.engine.CreateContainer(ctx, "carrier", name,
			&dockerapi.ContainerConfig{
				Image:      s.Reference(),
				Entrypoint: []string{guest.Path},
				Labels:     objects.HandleLabels(h, objects.RolePopulator),
			}, &dockerapi.HostConfig{Mounts: mounts, NetworkMode: "none"})
		if sandbox.CodeOf(err) == sandbox.Conflict {
			return false, ts.engine.RemoveContainer(ctx, name)
		}
		return err == nil, err
	})
}

// Mounts are the volumes of a sandbox: the shared guest volume, and its own two.
func Mounts(h driver.Handle, s Template) []dockerapi.Mount {
	return []dockerapi.Mount{
		engine.VolumeMount(s.GuestVolume(), guest.Dir, objects.EnvironmentLabels(s.ref, objects.RoleGuest)),
		engine.VolumeMount(objects.WorkspaceVolume(h), "/workspace", objects.HandleLabels(h, objects.RoleWorkspace)),
		engine.VolumeMount(objects.DataVolume(h), "/data", objects.HandleLabels(h, objects.RoleData)),
	}
}
