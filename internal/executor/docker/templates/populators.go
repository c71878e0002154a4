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

// Fill fills the volumes of a sandbox from the template. The engine does so when it creates a populator. The engine
// only fills empty volumes, so a retry is harmless. guestMade is from FindGuest. populated means that there is a
// populator, which the caller removes. If it would copy nothing, Fill creates none. Errors: ErrMade.
func (ts *Templates) Fill(ctx context.Context, h driver.Handle, s Template, guestMade string,
	mounts []dockerapi.Mount) (populated bool, err error) {
	if ts.copiesNothing(s, guestMade) {
		return false, nil
	}
	err = ts.createPopulator(ctx, h, s, mounts)
	if sandbox.CodeOf(err) == sandbox.NotFound { // the template was removed, or the image changed after Provision
		if err = ts.Ensure(ctx, s); err == nil {
			err = ts.createPopulator(ctx, h, s, mounts)
		}
	}
	if err != nil {
		return false, err
	}
	if err := ts.noteFilled(ctx, s); err != nil { // the next sandbox gets a populator too
		ts.engine.Log.WarnContext(ctx, "docker: a filled volume could not be looked at", "volume", s.GuestVolume(),
			"error", err)
	}
	return true, nil
}

// maxFilled limits the cached templates and guest volumes. Each engine uses few.
const maxFilled = 1024

// copiesNothing reports whether a populator would copy nothing: the guest volume is filled, and the template has no
// content for the volumes of one sandbox.
func (ts *Templates) copiesNothing(s Template, guestMade string) bool {
	ts.mu.Lock()
	defer ts.mu.Unlock()
	return guestMade != "" && ts.filled[s.GuestVolume()] == guestMade && ts.bare[s.Reference()]
}

// Forget forgets that the guest volume of a template is filled, so that the next Fill creates a populator.
func (ts *Templates) Forget(s Template) {
	ts.mu.Lock()
	defer ts.mu.Unlock()
	delete(ts.filled, s.GuestVolume())
}

// noteFilled notes that a populator of the template has filled the guest volume. The populator still exists, so the
// engine does not prune the volume. A volume's creation time on the engine is the last change of its root directory.
// The populator changes it, so noteFilled reads the time afterwards.
func (ts *Templates) noteFilled(ctx context.Context, s Template) error {
	bare, err := ts.isBare(ctx, s)
	if !bare || err != nil {
		return err
	}
	made, err := ts.FindGuest(ctx, s)
	if err != nil {
		return err
	}
	ts.mu.Lock()
	defer ts.mu.Unlock()
	remember(ts.filled, s.GuestVolume(), made, maxFilled)
	return nil
}

// isBare reports whether a template has no content for the volumes of one sandbox. It asks the engine once.
func (ts *Templates) isBare(ctx context.Context, s Template) (bare bool, err error) {
	ts.mu.Lock()
	bare, known := ts.bare[s.Reference()]
	ts.mu.Unlock()
	if known {
		return bare, nil
	}
	img, err := ts.engine.Image(ctx, s.Reference())
	if err != nil {
		return false, err
	}
	bare = engine.LabelsOf(img)[objects.LabelBare] == "true"
	ts.mu.Lock()
	defer ts.mu.Unlock()
	remember(ts.bare, s.Reference(), bare, maxFilled)
	return bare, nil
}

// ErrMade means that another caller has created the container, and so the volumes.
var ErrMade = errors.New("the container was created meanwhile")

// createPopulator creates a populator. Its name ensures that only one caller fills the volumes at a time. An existing
// populator, from another caller or a crash, has done its work.
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
