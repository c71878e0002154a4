package image

import (
	"context"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/dockerapi"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// Push makes the engine push name:tag to its registry, and returns the digest there. auth comes from
// registry.Client.EngineAuth. Only ctx limits its time. Errors: NotFound, if the engine does not have the image;
// Failed, with the registry's answer; Unavailable.
func (b *Builder) Push(ctx context.Context, name, tag, auth string) (digest string, err error) {
	engine, err := b.connect()
	if err != nil {
		return "", err
	}
	ref := name + ":" + tag
	answer, err := engine.ImagePush(ctx, ref, dockerapi.ImagePushOptions{RegistryAuth: auth})
	if err != nil {
		return "", changed(err, "push image %s", ref)
	}
	digest, err = dockerapi.FollowTransfer(ctx, answer)
	if err != nil {
		return "", sandbox.Errorf(sandbox.CodeOf(err), "push image %s: %w", ref, err)
	}
	if digest == "" {
		return "", sandbox.Errorf(sandbox.Failed, "push image %s: the engine did not return a digest", ref)
	}
	return digest, nil
}

// Pull makes the engine pull an image by a reference with a digest, and returns the image. auth comes from
// registry.Client.EngineAuth. Only ctx limits its time. Errors: NotFound, Failed, with the registry's answer;
// Unavailable.
func (b *Builder) Pull(ctx context.Context, pinned, auth string) (Image, error) {
	engine, err := b.connect()
	if err != nil {
		return Image{}, err
	}
	b.cache.RLock()
	defer b.cache.RUnlock()
	answer, err := engine.ImagePull(ctx, pinned, dockerapi.ImagePullOptions{RegistryAuth: auth})
	if err != nil {
		return Image{}, changed(err, "pull image %s", pinned)
	}
	if _, err := dockerapi.FollowTransfer(ctx, answer); err != nil {
		return Image{}, sandbox.Errorf(sandbox.CodeOf(err), "pull image %s: %w", pinned, err)
	}
	return b.Inspect(ctx, pinned)
}
