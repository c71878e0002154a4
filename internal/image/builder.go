package image

import (
	"context"
	"io"
	"net"
	"slices"
	"strings"
	"sync"
	"time"

	cerrdefs "github.com/containerd/errdefs"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/dockerapi"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// ContextHashLabel is the label of a built image that holds its context hash.
const ContextHashLabel = "io.sandbox-lease.context-hash"

// Every call ends within this time, but a build, a push and a pull.
const callTimeout = time.Minute

// Engine is the part of a Docker Engine's API that images need; *client.Client has it.
type Engine interface {
	ImageBuild(ctx context.Context, buildContext io.Reader, options dockerapi.BuildOptions) (dockerapi.BuildResponse, error)
	BuildCancel(ctx context.Context, id string) error
	DialHijack(ctx context.Context, url, proto string, meta map[string][]string) (net.Conn, error)
	ImageInspect(ctx context.Context, ref string, options ...dockerapi.ImageInspectOption) (dockerapi.ImageInspect, error)
	ImageTag(ctx context.Context, source, target string) error
	ImagePush(ctx context.Context, ref string, options dockerapi.ImagePushOptions) (io.ReadCloser, error)
	ImagePull(ctx context.Context, ref string, options dockerapi.ImagePullOptions) (io.ReadCloser, error)
	ImageSave(ctx context.Context, refs []string, options ...dockerapi.ImageSaveOption) (io.ReadCloser, error)
	ImageRemove(ctx context.Context, ref string, options dockerapi.ImageRemoveOptions) ([]dockerapi.ImageDeleteResponse, error)
	Info(ctx context.Context) (dockerapi.Info, error)
	Ping(ctx context.Context) (dockerapi.Ping, error)
}

// Builder builds images on one engine and looks after them. It is safe for concurrent use.
type Builder struct {
	connect func() (Engine, error)
	// cache keeps removals away from builds: removing an image takes the cached steps along that
	// only it has used, and a build that is just using one of these fails.
	cache sync.RWMutex
}

// NewBuilder returns a builder. connect is called for every operation and should remember the
// connection; its errors carry a code.
func NewBuilder(connect func() (Engine, error)) *Builder { return &Builder{connect: connect} }

// Instance returns the id of the engine that answers now. Errors: Unavailable.
func (b *Builder) Instance(ctx context.Context) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	engine, err := b.connect()
	if err != nil {
		return "", err
	}
	info, err := engine.Info(ctx)
	if err != nil {
		return "", coded(err, "ask the Docker engine for its id")
	}
	return info.ID, nil
}

// Image is an image on the engine.
type Image struct {
	// ID pins the image on this engine: "sha256:…".
	ID string
	// ContextHash is what the image was built from, empty when this package did not build it.
	ContextHash string
	// References are the names with tags that point to the image.
	References []string
	// Pinned are the names with digests under which registries have the image: it was pushed there or
	// pulled from there.
	Pinned []string
	// Size is that of the unpacked layers, in bytes.
	Size int64
	// Layers are the digests of the unpacked layers, the lowest first.
	Layers []string
}

// Digest returns the digest that the registry of a name has the image under, "" when the engine
// knows of none.
func (i Image) Digest(name string) string {
	for _, ref := range i.Pinned {
		if n, digest, ok := strings.Cut(ref, "@"); ok && sameName(n, name) {
			return digest
		}
	}
	return ""
}

// Tags returns the image's tags under a name, sorted.
func (i Image) Tags(name string) []string {
	var tags []string
	for _, ref := range i.References {
		if n, tag, err := Split(ref); err == nil && sameName(n, name) {
			tags = append(tags, tag)
		}
	}
	slices.Sort(tags)
	return tags
}

// Inspect looks an image up by id or reference. Errors: NotFound, Unavailable.
func (b *Builder) Inspect(ctx context.Context, ref string) (Image, error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	engine, err := b.connect()
	if err != nil {
		return Image{}, err
	}
	found, err := engine.ImageInspect(ctx, ref)
	if err != nil {
		return Image{}, coded(err, "inspect image %s", ref)
	}
	img := Image{ID: found.ID, References: found.RepoTags, Pinned: found.RepoDigests, Size: found.Size, Layers: found.RootFS.Layers}
	if found.Config != nil {
		img.ContextHash = found.Config.Labels[ContextHashLabel]
	}
	return img, nil
}

// Tag makes name:tag point to an image. Errors: NotFound, Invalid, Unavailable.
func (b *Builder) Tag(ctx context.Context, id, name, tag string) error {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	engine, err := b.connect()
	if err != nil {
		return err
	}
	if err := engine.ImageTag(ctx, id, name+":"+tag); err != nil {
		return coded(err, "tag image %s as %s:%s", id, name, tag)
	}
	return nil
}

// Untag removes name:tag if it still points to the image with this id; a name that is gone or has
// moved on is success. The engine removes an image with its last name. Errors: Conflict, when a
// container was made from the image by this name, which is its last one; Unavailable.
func (b *Builder) Untag(ctx context.Context, id, name, tag string) error {
	ref := name + ":" + tag
	found, err := b.Inspect(ctx, ref)
	switch {
	case sandbox.CodeOf(err) == sandbox.NotFound:
		return nil
	case err != nil:
		return err
	case found.ID != id:
		return nil
	}
	return b.remove(ctx, ref)
}

// Delete removes every name of an image and with them the image. Absent is success. Errors:
// Conflict, when a container was made from it; Unavailable.
func (b *Builder) Delete(ctx context.Context, id string) error {
	found, err := b.Inspect(ctx, id)
	switch {
	case sandbox.CodeOf(err) == sandbox.NotFound:
		return nil
	case err != nil:
		return err
	}
	for _, ref := range slices.Concat(found.References, found.Pinned) {
		if err := b.remove(ctx, ref); err != nil {
			return err
		}
	}
	return b.remove(ctx, id)
}

// DeleteUnnamed removes an image that no name points to any more, and leaves one that has a name.
// Errors: as Delete.
func (b *Builder) DeleteUnnamed(ctx context.Context, id string) error {
	found, err := b.Inspect(ctx, id)
	switch {
	case sandbox.CodeOf(err) == sandbox.NotFound, err == nil && len(found.References) > 0:
		return nil
	case err != nil:
		return err
	}
	for _, ref := range found.Pinned {
		if err := b.remove(ctx, ref); err != nil {
			return err
		}
	}
	return b.remove(ctx, id)
}

func (b *Builder) remove(ctx context.Context, ref string) error {
	b.cache.Lock() // outside of the call's own time
	defer b.cache.Unlock()
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	engine, err := b.connect()
	if err != nil {
		return err
	}
	_, err = engine.ImageRemove(ctx, ref, dockerapi.ImageRemoveOptions{PruneChildren: true})
	if err != nil && !cerrdefs.IsNotFound(err) {
		return coded(err, "remove image %s", ref)
	}
	return nil
}

// coded gives an error of the engine its code.
func coded(err error, format string, args ...any) error {
	code := sandbox.Failed
	switch {
	case dockerapi.IsConnectionFailed(err), cerrdefs.IsUnavailable(err), cerrdefs.IsDeadlineExceeded(err), cerrdefs.IsCanceled(err):
		code = sandbox.Unavailable
	case cerrdefs.IsNotFound(err):
		code = sandbox.NotFound
	case cerrdefs.IsConflict(err):
		code = sandbox.Conflict
	case cerrdefs.IsInvalidArgument(err):
		code = sandbox.Invalid
	}
	return sandbox.Errorf(code, format+": %w", append(args, err)...)
}
