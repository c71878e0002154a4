package docker

import (
	"context"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/dockerapi"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// Requests that several parts make. what is the object in errors, such as "containers of ledger", with id.

func (e *Executor) listContainers(ctx context.Context, what, id string, f dockerapi.Filters) (
	[]dockerapi.ContainerSummary, error) {
	return fetch(ctx, e, read("list "+what, id), func(ctx context.Context) ([]dockerapi.ContainerSummary, error) {
		return e.api.ContainerList(ctx, dockerapi.ContainerListOptions{All: true, Filters: f})
	})
}

func (e *Executor) listVolumes(ctx context.Context, what, id string, f dockerapi.Filters) (
	[]*dockerapi.Volume, error) {
	found, err := fetch(ctx, e, read("list "+what, id), func(ctx context.Context) (dockerapi.VolumeListResponse, error) {
		return e.api.VolumeList(ctx, dockerapi.VolumeListOptions{Filters: f})
	})
	return found.Volumes, err
}

func (e *Executor) listImages(ctx context.Context, what, id string, f dockerapi.Filters) (
	[]dockerapi.ImageSummary, error) {
	return fetch(ctx, e, read("list "+what, id), func(ctx context.Context) ([]dockerapi.ImageSummary, error) {
		return e.api.ImageList(ctx, dockerapi.ImageListOptions{Filters: f})
	})
}

// create creates a container and returns its id. what is the kind of container in errors.
func (e *Executor) create(ctx context.Context, what, name string, config *dockerapi.ContainerConfig,
	host *dockerapi.HostConfig) (id string, err error) {
	made, err := fetch(ctx, e, change("create "+what, name, sandbox.ReasonCreationFailed),
		func(ctx context.Context) (dockerapi.ContainerCreateResponse, error) {
			return e.api.ContainerCreate(ctx, config, host, nil, nil, name)
		})
	return made.ID, err
}

func (e *Executor) startContainer(ctx context.Context, name string) error {
	return e.do(ctx, change("start container", name, sandbox.ReasonStartFailed), func(ctx context.Context) error {
		return e.api.ContainerStart(ctx, name, dockerapi.StartOptions{})
	})
}

func (e *Executor) unpause(ctx context.Context, name string) error {
	return e.do(ctx, change("unpause container", name, sandbox.ReasonStartFailed), func(ctx context.Context) error {
		return e.api.ContainerUnpause(ctx, name)
	})
}

// findVolume inspects one of our volumes. Errors: NotFound, and as checkLabels.
func (e *Executor) findVolume(ctx context.Context, name string, labels map[string]string) (dockerapi.Volume, error) {
	v, err := fetch(ctx, e, read("find volume", name), func(ctx context.Context) (dockerapi.Volume, error) {
		return e.api.VolumeInspect(ctx, name)
	})
	if err == nil {
		err = e.checkLabels("volume", name, v.Labels, labels)
	}
	return v, err
}

// tryRemoveVolume removes a volume. Errors: Conflict while it is in use.
func (e *Executor) tryRemoveVolume(ctx context.Context, name string) error {
	return e.do(ctx, change("remove volume", name, sandbox.ReasonRemovalFailed), func(ctx context.Context) error {
		return e.api.VolumeRemove(ctx, name, false)
	})
}

// inspectImage inspects an image by reference or id.
func (e *Executor) inspectImage(ctx context.Context, ref string) (dockerapi.ImageInspect, error) {
	return fetch(ctx, e, read("find image", ref), func(ctx context.Context) (dockerapi.ImageInspect, error) {
		return e.api.ImageInspect(ctx, ref)
	})
}

// labelsOf returns the labels of an image.
func labelsOf(img dockerapi.ImageInspect) map[string]string {
	if img.Config == nil {
		return nil
	}
	return img.Config.Labels
}
