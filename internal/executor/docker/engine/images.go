package engine

import (
	"context"
	"fmt"
	"io"
	"math"
	"slices"

	cerrdefs "github.com/containerd/errdefs"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/dockerapi"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/driver"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/executor/docker/objects"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// Logins finds the X-Registry-Auth header for pulling an image, "" for none. Its errors carry a code.
type Logins interface {
	EngineAuth(ctx context.Context, ref string) (string, error)
}

// FindImage inspects an image on the engine. Errors: NotFound with ReasonImageNotFound.
func (e *Engine) FindImage(ctx context.Context, ref, instance string) (dockerapi.ImageInspect, error) {
	img, err := e.Image(ctx, ref)
	if sandbox.CodeOf(err) != sandbox.NotFound {
		return img, err
	}
	if err := e.Confirm(ctx, instance); err != nil {
		return img, err
	}
	return img, sandbox.Errorf(sandbox.NotFound, "docker: engine %s has no image %s: build it with "+
		"sandbox_container_image, pull or import it on that engine, or apply the environment with image_pull = \"missing\"",
		instance, ref).WithReason(sandbox.ReasonImageNotFound)
}

// GetImage is FindImage, but it pulls a missing image if pull allows it. Errors: NotFound with ReasonImageNotFound;
// Failed; Invalid.
func (e *Engine) GetImage(ctx context.Context, ref, instance string, pull sandbox.ImagePull) (
	dockerapi.ImageInspect, error) {
	img, err := e.FindImage(ctx, ref, instance)
	if pull != sandbox.PullMissing || sandbox.CodeOf(err) != sandbox.NotFound {
		return img, err
	}
	if err := e.pullImage(ctx, ref, instance); err != nil {
		return img, err
	}
	return e.FindImage(ctx, ref, instance)
}

// pullImage makes the engine pull an image. The engine waits for the registry, so the request needs no slot.
func (e *Engine) pullImage(ctx context.Context, ref, instance string) error {
	var auth string
	if e.logins != nil {
		var err error
		if auth, err = e.logins.EngineAuth(ctx, ref); err != nil {
			return err
		}
	}
	r := Request{verb: "pull image", object: ref, Limit: driver.ImageLimit, Waits: true,
		Reason: sandbox.ReasonImageNotFound}
	err := e.Do(ctx, r, func(ctx context.Context) error {
		answer, err := e.API.ImagePull(ctx, ref, dockerapi.ImagePullOptions{RegistryAuth: auth})
		if err != nil {
			return err
		}
		_, err = dockerapi.FollowTransfer(ctx, answer)
		return err
	})
	if sandbox.CodeOf(err) == sandbox.NotFound { // the registry lacks the image or hides it from requests without a login
		return sandbox.Errorf(sandbox.NotFound, "docker: engine %s has no image %s, and its registry does not give it: %w; "+
			"check the name, and the login of the reconciler for that registry", instance, ref, err).
			WithReason(sandbox.ReasonImageNotFound)
	}
	return err
}

// RemoveImages removes the environment's images of a role, except those to keep. A template that is still needed is
// created again.
func (e *Engine) RemoveImages(ctx context.Context, ref driver.EnvironmentRef, r objects.Role,
	keep ...string) error {
	return e.RemoveLabelled(ctx, "environment "+ref.EnvironmentID, objects.EnvironmentLabels(ref, r), keep...)
}

// RemoveLabelled removes the images with the labels, except those to keep.
func (e *Engine) RemoveLabelled(ctx context.Context, of string, labels map[string]string, keep ...string) error {
	found, err := e.ListImages(ctx, "images of", of, objects.Filter(labels))
	if err != nil {
		return err
	}
	for _, img := range found {
		if slices.ContainsFunc(img.RepoTags, func(tag string) bool { return slices.Contains(keep, tag) }) {
			continue
		}
		err := e.Do(ctx, Change("remove image", img.ID, sandbox.ReasonRemovalFailed), func(ctx context.Context) error {
			_, err := e.API.ImageRemove(ctx, img.ID, dockerapi.ImageRemoveOptions{Force: true, PruneChildren: true})
			return err
		})
		if err != nil && sandbox.CodeOf(err) != sandbox.NotFound {
			return err
		}
	}
	return nil
}

// ListImages lists images. what and id appear in errors, such as "images of ledger" and the ledger's id.
func (e *Engine) ListImages(ctx context.Context, what, id string, f dockerapi.Filters) (
	[]dockerapi.ImageSummary, error) {
	return Fetch(ctx, e, Read("list "+what, id), func(ctx context.Context) ([]dockerapi.ImageSummary, error) {
		return e.API.ImageList(ctx, dockerapi.ImageListOptions{Filters: f})
	})
}

// Image inspects an image by reference or id.
func (e *Engine) Image(ctx context.Context, ref string) (dockerapi.ImageInspect, error) {
	return Fetch(ctx, e, Read("find image", ref), func(ctx context.Context) (dockerapi.ImageInspect, error) {
		return e.API.ImageInspect(ctx, ref)
	})
}

// LabelsOf returns the labels of an image.
func LabelsOf(img dockerapi.ImageInspect) map[string]string {
	if img.Config == nil {
		return nil
	}
	return img.Config.Labels
}

// FindOwnImage reports whether the engine has one of our images. Errors: as for CheckLabels.
func (e *Engine) FindOwnImage(ctx context.Context, reference string, labels map[string]string) (bool, error) {
	have, err := e.Image(ctx, reference)
	if sandbox.CodeOf(err) == sandbox.NotFound {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	return true, e.CheckLabels("image", reference, LabelsOf(have), labels)
}

// ImportImage creates an image with one layer, a tar stream.
func (e *Engine) ImportImage(ctx context.Context, reference string, labels map[string]string,
	content io.ReaderAt) error {
	opts := dockerapi.ImageImportOptions{Message: labels[objects.LabelRole] + " of ledger " + labels[objects.LabelLedger]}
	for k, v := range labels {
		opts.Changes = append(opts.Changes, fmt.Sprintf("LABEL %s=%q", k, v))
	}
	r := Change("import image", reference, sandbox.ReasonCreationFailed)
	r.Limit = ImportLimit
	return e.Do(ctx, r, func(ctx context.Context) error {
		// Each attempt has its own reader: the transport may still read, and then close, the previous one.
		source := dockerapi.ImageImportSource{
			Source: io.NopCloser(io.NewSectionReader(content, 0, math.MaxInt64)), SourceName: "-",
		}
		answer, err := e.API.ImageImport(ctx, source, reference, opts)
		if err != nil {
			return err
		}
		defer answer.Close()
		// A failed import returns its error in the body, after the status.
		if err := dockerapi.Finish(answer); err != nil {
			return fmt.Errorf("%w: %w", cerrdefs.ErrInternal, err)
		}
		return nil
	})
}
