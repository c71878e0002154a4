package deploy

import (
	"context"
	"slices"
	"strings"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/executor/cloudflare"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// prune removes a deployment's images, except the one with the tag, those that keep reports, and those of applications:
// instances that start before a rollout has reached them need their application's image.
func (d *Deployer) prune(ctx context.Context, name, tag string, keep func(digest string) bool) error {
	all, err := d.listApplications(ctx, name)
	if err != nil {
		return err
	}
	var used []string
	for _, a := range all {
		used = append(used, digestOf(a.Configuration.Image))
	}
	return d.dropTags(ctx, name, false, func(s *shelf, t string) (bool, error) {
		if t == tag {
			return true, nil
		}
		digest, err := s.client.Digest(ctx, s.name+":"+t, "")
		if sandbox.CodeOf(err) == sandbox.NotFound {
			return false, nil
		}
		return err != nil || slices.Contains(used, digest) || (keep != nil && keep(digest)), err
	})
}

// RemoveImages implements cloudflare.Deployer.
func (d *Deployer) RemoveImages(ctx context.Context, name string) error {
	if err := cloudflare.CheckDeploymentName(name); err != nil {
		return err
	}
	return d.dropTags(ctx, name, true, func(*shelf, string) (bool, error) { return false, nil })
}

// dropTags removes the tags of a deployment except those to keep. The registry's garbage collection then removes images
// without tags, and layers that no image has. always starts the collection even if no tag was removed: an earlier call
// may have broken off before it.
func (d *Deployer) dropTags(
	ctx context.Context, name string, always bool, stays func(*shelf, string) (bool, error),
) error {
	return d.onShelf(ctx, "remove images of "+name, func(s *shelf) error {
		tags, err := s.client.Tags(ctx, s.name)
		if sandbox.CodeOf(err) == sandbox.NotFound { // nothing was ever prepared
			return nil
		}
		if err != nil {
			return err
		}
		dropped := always
		for _, tag := range tags {
			if !strings.HasPrefix(tag, tagOf(name, "")) {
				continue
			}
			stay, err := stays(s, tag)
			if err != nil {
				return err
			}
			if stay {
				continue
			}
			if err := s.client.DeleteTag(ctx, s.name+":"+tag); err != nil {
				return err
			}
			dropped = true
		}
		if !dropped {
			return nil
		}
		switch err := s.client.Collect(ctx, s.host); sandbox.CodeOf(err) {
		case sandbox.NotFound, sandbox.Forbidden: // this registry frees space by itself
			return nil
		default:
			return err
		}
	})
}
