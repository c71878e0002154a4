package registry

import (
	"context"
	"strings"
	"time"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/remote"

	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// Digest returns the digest of a reference in its registry. With a platform (os/arch[/variant]) it returns
// that of the platform's image if the reference is an index. Errors: NotFound, Invalid, Unauthenticated,
// Forbidden, Unavailable.
func (c *Client) Digest(ctx context.Context, ref, platform string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	parsed, options, err := c.on(ctx, ref)
	if err != nil {
		return "", err
	}
	if platform == "" {
		found, err := remote.Head(parsed, options...)
		if err != nil {
			return "", coded(err, "find %s", parsed)
		}
		return found.Digest.String(), nil
	}
	img, err := c.platformImage(parsed, platform, options)
	if err != nil {
		return "", err
	}
	digest, err := img.Digest()
	if err != nil {
		return "", coded(err, "read %s", parsed)
	}
	return digest.String(), nil
}

// Image is an image in a registry.
type Image struct {
	// Size is the size of the compressed layers in the registry, in bytes.
	Size int64
	// Layers are the digests of the unpacked layers, lowest first.
	Layers []string
}

// Image reads the image of a reference, for linux/amd64 if it is an index. Errors: as Digest.
func (c *Client) Image(ctx context.Context, ref string) (Image, error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	parsed, options, err := c.on(ctx, ref)
	if err != nil {
		return Image{}, err
	}
	img, err := c.platformImage(parsed, "linux/amd64", options)
	if err != nil {
		return Image{}, err
	}
	found, err := describe(img)
	return found, coded(err, "read %s", parsed)
}

// CreatedAt returns the creation time in the image's configuration, for linux/amd64 if the reference is an
// index. The zero time means none. Reproducible builds often say 1970. Errors: as Digest.
func (c *Client) CreatedAt(ctx context.Context, ref string) (time.Time, error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	parsed, options, err := c.on(ctx, ref)
	if err != nil {
		return time.Time{}, err
	}
	img, err := c.platformImage(parsed, "linux/amd64", options)
	if err != nil {
		return time.Time{}, err
	}
	config, err := img.ConfigFile()
	if err != nil {
		return time.Time{}, coded(err, "read %s", parsed)
	}
	return config.Created.Time, nil
}

func describe(img v1.Image) (Image, error) {
	manifest, err := img.Manifest()
	if err != nil {
		return Image{}, err
	}
	config, err := img.ConfigFile()
	if err != nil {
		return Image{}, err
	}
	var found Image
	for _, layer := range manifest.Layers {
		found.Size += layer.Size
	}
	for _, id := range config.RootFS.DiffIDs {
		found.Layers = append(found.Layers, id.String())
	}
	return found, nil
}

// platformImage returns the image of a reference for a platform: the matching one of an index, or the only
// one, whatever its platform.
func (c *Client) platformImage(ref name.Reference, platform string, options []remote.Option) (v1.Image, error) {
	wanted, err := v1.ParsePlatform(platform)
	if err != nil {
		return nil, sandbox.Errorf(sandbox.Invalid, "%q is not a platform such as linux/amd64", platform)
	}
	found, err := remote.Get(ref, options...)
	if err != nil {
		return nil, coded(err, "find %s", ref)
	}
	if !found.MediaType.IsIndex() {
		img, err := found.Image()
		return img, coded(err, "read %s", ref)
	}
	index, err := found.ImageIndex()
	if err != nil {
		return nil, coded(err, "read %s", ref)
	}
	list, err := index.IndexManifest()
	if err != nil {
		return nil, coded(err, "read %s", ref)
	}
	var others []string
	for _, entry := range list.Manifests {
		switch {
		case entry.Platform == nil:
		case entry.Platform.Satisfies(*wanted):
			img, err := index.Image(entry.Digest)
			return img, coded(err, "read %s", ref)
		case entry.Platform.OS != "unknown": // builders mark entries that are not images like this
			others = append(others, entry.Platform.String())
		}
	}
	return nil, sandbox.Errorf(sandbox.NotFound, "registry: %s has no image for %s, only for: %s",
		ref, platform, strings.Join(others, ", "))
}

// Open returns an image for reading, for a platform if the reference is an index. It is read lazily, until
// ctx ends. Errors: as Digest.
func (c *Client) Open(ctx context.Context, ref, platform string) (v1.Image, error) {
	parsed, options, err := c.on(ctx, ref)
	if err != nil {
		return nil, err
	}
	return c.platformImage(parsed, platform, options)
}

// Tags returns the tags of a repository, in the registry's order. Errors: NotFound, Invalid, Unauthenticated,
// Forbidden, Unavailable.
func (c *Client) Tags(ctx context.Context, repository string) ([]string, error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	parsed, options, err := c.on(ctx, repository)
	if err != nil {
		return nil, err
	}
	tags, err := remote.List(parsed.Context(), options...)
	return tags, coded(err, "list the tags of %s", parsed.Context())
}

// DeleteTag removes a tag but neither the image nor its other tags. Absent is success. Errors: Forbidden,
// also if the registry cannot remove tags; Invalid, Unauthenticated, Unavailable.
func (c *Client) DeleteTag(ctx context.Context, ref string) error {
	err := c.remove(ctx, ref)
	if sandbox.CodeOf(err) == sandbox.Invalid { // the answer of Docker's registry before version 3
		return sandbox.Errorf(sandbox.Forbidden, "the registry cannot remove single tags: %w", err)
	}
	return err
}

// Delete removes an image, named by its digest, with all its tags. Absent is success. Errors: Forbidden, also
// if the registry does not support removal; Invalid, Unauthenticated, Unavailable.
func (c *Client) Delete(ctx context.Context, ref string) error { return c.remove(ctx, ref) }

func (c *Client) remove(ctx context.Context, ref string) error {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	parsed, options, err := c.on(ctx, ref)
	if err != nil {
		return err
	}
	err = coded(remote.Delete(parsed, options...), "remove %s", parsed)
	if sandbox.CodeOf(err) == sandbox.NotFound {
		return nil
	}
	return err
}

// on parses a reference and returns it with the common options.
func (c *Client) on(ctx context.Context, ref string) (name.Reference, []remote.Option, error) {
	parsed, err := parse(ref)
	if err != nil {
		return nil, nil, err
	}
	options, err := c.options(ctx, parsed)
	return parsed, options, err
}
