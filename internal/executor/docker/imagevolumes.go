package docker

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"path"
	"slices"
	"strings"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/dockerapi"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/driver"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/executor/docker/engine"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/executor/docker/objects"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// An image can declare volumes. An engine creates a writable one for each that a container does not mount, and no limit
// of the sandbox covers those. So a sandbox mounts its own volumes there, read-only. The engine copies the image's
// content into them. Sandboxes do not share them, because code can exchange messages through locks on shared files.

// checkImageVolumes rejects an image with a volume that cannot be mounted read-only. An engine accepts a relative path
// only in images. field names the image. saved means that /data is saved, and restored into the sandbox. Errors:
// Invalid.
func checkImageVolumes(ref driver.EnvironmentRef, field string, img dockerapi.ImageInspect, saved bool) error {
	if img.Config == nil {
		return nil
	}
	var f []sandbox.Field
	for _, target := range slices.Sorted(maps.Keys(img.Config.Volumes)) {
		switch {
		case !path.IsAbs(target):
			f = append(f, sandbox.Field{Name: field, Problem: fmt.Sprintf(
				"declares the VOLUME %q, which must be an absolute path: change the image", target)})
		case saved && strings.HasPrefix(path.Clean(target), sandbox.DataDir+"/"):
			f = append(f, sandbox.Field{Name: field, Problem: fmt.Sprintf(
				"declares the VOLUME %q, which is read-only, so /data could not be restored: change the image, or remove state",
				target)})
		}
	}
	return sandbox.InvalidFields("environment "+ref.EnvironmentID, f)
}

// imageVolumes mounts the volumes of an image, except where h mounts something else. They have names, because an engine
// refuses read-only volumes without one.
func imageVolumes(spec driver.SandboxSpec, img dockerapi.ImageInspect,
	h *dockerapi.HostConfig) (mounts []dockerapi.Mount) {
	if img.Config == nil {
		return nil
	}
	taken := make(map[string]bool)
	for target := range h.Tmpfs {
		taken[target] = true
	}
	for _, m := range h.Mounts {
		taken[path.Clean(m.Target)] = true
	}
	labels := objects.WithLeaseLabels(objects.HandleLabels(spec.Handle, objects.RoleImageVolume), spec)
	for _, target := range slices.Sorted(maps.Keys(img.Config.Volumes)) {
		target = path.Clean(target)
		if taken[target] {
			continue
		}
		taken[target] = true
		m := engine.VolumeMount(objects.ImageVolume(spec.Handle, target), target, labels)
		m.ReadOnly = true
		mounts = append(mounts, m)
	}
	return mounts
}

// removeImageVolumes removes the volumes at the paths that the image declares. If found, c names them.
func (e *Executor) removeImageVolumes(ctx context.Context, h driver.Handle, c dockerapi.ContainerSummary,
	found bool) error {
	var names []string
	for _, m := range c.Mounts {
		names = append(names, m.Name)
	}
	if !found {
		all, err := e.engine.ListVolumes(ctx, "volumes of sandbox", h.SandboxID,
			objects.Filter(objects.HandleLabels(h, objects.RoleImageVolume)))
		if err != nil {
			return err
		}
		for _, v := range all {
			names = append(names, v.Name)
		}
	}
	var failed error
	for _, name := range names {
		if objects.IsImageVolume(name, h) { // not one of its companions
			failed = errors.Join(failed, e.removeVolume(ctx, name, h, objects.RoleImageVolume))
		}
	}
	return failed
}
