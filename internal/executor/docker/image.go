package docker

import (
	"context"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/dockerapi"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/driver"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// Logins finds the X-Registry-Auth header for pulling an image, "" for none. Its errors carry a code.
type Logins interface {
	EngineAuth(ctx context.Context, ref string) (string, error)
}

// LoginsIn returns the logins in a configuration file of the docker CLI. Errors: Invalid, if it cannot be read.
func LoginsIn(file string) (Logins, error) {
	logins := dockerapi.LoginFile(file)
	return logins, logins.Check()
}

// findImage inspects an image on the engine. Errors: NotFound with ReasonImageNotFound.
func (e *Executor) findImage(ctx context.Context, ref, instance string) (dockerapi.ImageInspect, error) {
	img, err := e.inspectImage(ctx, ref)
	if !isCode(err, sandbox.NotFound) {
		return img, err
	}
	if err := e.confirm(ctx, instance); err != nil {
		return img, err
	}
	return img, sandbox.Errorf(sandbox.NotFound, "docker: engine %s has no image %s: build it with "+
		"sandbox_container_image, pull or import it on that engine, or apply the environment with image_pull = \"missing\"",
		instance, ref).WithReason(sandbox.ReasonImageNotFound)
}

// getImage is findImage, and pulls an image that is missing where the environment allows it. Errors: NotFound with
// ReasonImageNotFound, Failed, Invalid.
func (e *Executor) getImage(ctx context.Context, ref, instance string, pull sandbox.ImagePull) (
	dockerapi.ImageInspect, error) {
	img, err := e.findImage(ctx, ref, instance)
	if pull != sandbox.PullMissing || !isCode(err, sandbox.NotFound) {
		return img, err
	}
	if err := e.pullImage(ctx, ref, instance); err != nil {
		return img, err
	}
	return e.findImage(ctx, ref, instance)
}

// pullImage lets the engine pull an image. The engine waits for the registry, so the request needs no slot.
func (e *Executor) pullImage(ctx context.Context, ref, instance string) error {
	var auth string
	if e.logins != nil {
		var err error
		if auth, err = e.logins.EngineAuth(ctx, ref); err != nil {
			return err
		}
	}
	r := request{verb: "pull image", object: ref, limit: driver.ImageLimit, waits: true,
		reason: sandbox.ReasonImageNotFound}
	err := e.do(ctx, r, func(ctx context.Context) error {
		answer, err := e.api.ImagePull(ctx, ref, dockerapi.ImagePullOptions{RegistryAuth: auth})
		if err != nil {
			return err
		}
		_, err = dockerapi.FollowTransfer(ctx, answer)
		return err
	})
	if isCode(err, sandbox.NotFound) { // there, or to those without a login
		return sandbox.Errorf(sandbox.NotFound, "docker: engine %s has no image %s, and its registry does not give it: %w; "+
			"check the name, and the login of the reconciler for that registry", instance, ref, err).
			WithReason(sandbox.ReasonImageNotFound)
	}
	return err
}
