package engine

import (
	"context"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/dockerapi"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/driver"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/executor/docker/objects"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// RemoveVolume removes a volume if it is ours, and returns nil once it is gone. No running container may use it.
func (e *Engine) RemoveVolume(ctx context.Context, name string, labels map[string]string) error {
	look := Read("find volume", name)
	look.Late = true
	v, err := Fetch(ctx, e, look, func(ctx context.Context) (dockerapi.Volume, error) {
		return e.API.VolumeInspect(ctx, name)
	})
	if sandbox.CodeOf(err) == sandbox.NotFound {
		return nil
	}
	if err == nil {
		err = e.CheckLabels("volume", name, v.Labels, labels)
	}
	if err != nil {
		return err
	}
	remove := Change("remove volume", name, sandbox.ReasonRemovalFailed)
	remove.Late = true
	// A volume stays in use for a moment after its container is gone.
	return Await(ctx, "nothing uses volume "+name, RemovalLimit, func(ctx context.Context) (bool, error) {
		err := e.Do(ctx, remove, func(ctx context.Context) error {
			return e.API.VolumeRemove(ctx, name, false)
		})
		if sandbox.CodeOf(err) == sandbox.Conflict {
			return false, nil
		}
		if sandbox.CodeOf(err) == sandbox.NotFound {
			err = nil
		}
		return err == nil, err
	})
}

// EnsureVolume creates a volume or finds ours: the engine gives both the same answer.
func (e *Engine) EnsureVolume(ctx context.Context, name string, labels map[string]string) error {
	return e.EnsureSizedVolume(ctx, name, labels, "")
}

// EnsureSizedVolume is EnsureVolume with a size limit in bytes; "" means none.
func (e *Engine) EnsureSizedVolume(ctx context.Context, name string, labels map[string]string, size string) error {
	var options map[string]string
	if size != "" {
		options = map[string]string{"size": size}
	}
	v, err := Fetch(ctx, e, Change("create volume", name, sandbox.ReasonCreationFailed),
		func(ctx context.Context) (dockerapi.Volume, error) {
			return e.API.VolumeCreate(ctx, dockerapi.VolumeCreateOptions{Name: name, Labels: labels, DriverOpts: options})
		})
	if err != nil {
		return err
	}
	return e.CheckLabels("volume", name, v.Labels, labels)
}

// ListVolumes lists volumes. what and id appear in errors, such as "volumes of ledger" and the ledger's id.
func (e *Engine) ListVolumes(ctx context.Context, what, id string, f dockerapi.Filters) (
	[]*dockerapi.Volume, error) {
	found, err := Fetch(ctx, e, Read("list "+what, id), func(ctx context.Context) (dockerapi.VolumeListResponse, error) {
		return e.API.VolumeList(ctx, dockerapi.VolumeListOptions{Filters: f})
	})
	return found.Volumes, err
}

// VolumesOf lists the volumes of an environment with a role.
func (e *Engine) VolumesOf(ctx context.Context, ref driver.EnvironmentRef, r objects.Role) (
	[]*dockerapi.Volume, error) {
	f := objects.Filter(objects.EnvironmentLabels(ref, r))
	return e.ListVolumes(ctx, "volumes of environment", ref.EnvironmentID, f)
}

// Volume inspects one of our volumes. Errors: NotFound; as for CheckLabels.
func (e *Engine) Volume(ctx context.Context, name string, labels map[string]string) (dockerapi.Volume, error) {
	v, err := Fetch(ctx, e, Read("find volume", name), func(ctx context.Context) (dockerapi.Volume, error) {
		return e.API.VolumeInspect(ctx, name)
	})
	if err == nil {
		err = e.CheckLabels("volume", name, v.Labels, labels)
	}
	return v, err
}

// TryRemoveVolume removes a volume. Errors: Conflict while it is in use.
func (e *Engine) TryRemoveVolume(ctx context.Context, name string) error {
	return e.Do(ctx, Change("remove volume", name, sandbox.ReasonRemovalFailed), func(ctx context.Context) error {
		return e.API.VolumeRemove(ctx, name, false)
	})
}

// VolumeMount mounts a volume at target. If the engine has to create the volume, it gives it labels.
func VolumeMount(name, target string, labels map[string]string) dockerapi.Mount {
	return dockerapi.Mount{
		Type:          dockerapi.MountTypeVolume,
		Source:        name,
		Target:        target,
		VolumeOptions: &dockerapi.VolumeMountOptions{Labels: labels},
	}
}
