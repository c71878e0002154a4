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

// ContextHashLabel is the label of a built image with its context hash.
const ContextHashLabel = "io.sandbox-lease.context-hash"

// callTimeout limits every call except builds, pushes and pulls. A removal uses the deadline of its caller if there is
// one: an engine under load may take minutes to remove an image.
const callTimeout = time.Minute

// Engine is the part of the Docker Engine API that images need. *client.Client implements it.
type Engine interface {
	ImageBuild(ctx context.Context, buildContext io.Reader,
		options dockerapi.BuildOptions) (dockerapi.BuildResponse, error)
	BuildCancel(ctx context.Context, id string) error
	DialHijack(ctx context.Context, url, proto string, meta map[string][]string) (net.Conn, error)
	ImageInspect(ctx context.Context, ref string, options ...dockerapi.ImageInspectOption) (dockerapi.ImageInspect, error)
	ImageTag(ctx context.Context, source, target string) error
	ImagePush(ctx context.Context, ref string, options dockerapi.ImagePushOptions) (io.ReadCloser, error)
	ImagePull(ctx context.Context, ref string, options dockerapi.ImagePullOptions) (io.ReadCloser, error)
	ImageSave(ctx context.Context, refs []string, options ...dockerapi.ImageSaveOption) (io.ReadCloser, error)
	ImageRemove(ctx context.Context, ref string,
		options dockerapi.ImageRemoveOptions) ([]dockerapi.ImageDeleteResponse, error)
	Info(ctx context.Context) (dockerapi.Info, error)
	Ping(ctx context.Context) (dockerapi.Ping, error)
}

// Builder builds images on one engine and manages them. It is safe for concurrent use.
type Builder struct {
	connect func() (Engine, error)
	// cache separates removals from builds. Removing an image also removes cached steps that only it used,
	// and a build that is using such a step fails.
	cache sync.RWMutex
}

// NewBuilder returns a builder. It calls connect for every operation; connect should cache the connection.
// Errors of connect must carry a code.
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
		return "", coded(err, "get the id of the Docker engine")
	}
	return info.ID, nil
}

// Image is an image on the engine.
type Image struct {
	// ID pins the image on this engine: "sha256:…".
	ID string
	// ContextHash is the hash of the context it was built from, empty if this package did not build it.
	ContextHash string
	// References are the name:tag references of the image.
	References []string
	// Pinned are the name@digest references of the image: it was pushed there or pulled from there.
	Pinned []string
	// Size is the size of the unpacked layers, in bytes.
	Size int64
	// Layers are the digests of the unpacked layers, lowest first.
	Layers []string
}

// Digest returns the image's digest in the registry of a name, "" if the engine knows none.
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
	img := Image{
		ID:         found.ID,
		References: found.RepoTags,
		Pinned:     found.RepoDigests,
		Size:       found.Size,
		Layers:     found.RootFS.Layers,
	}
	if found.Config != nil {
		img.ContextHash = found.Config.Labels[ContextHashLabel]
	}
	return img, nil
}

// Tag makes name:tag point to an image. Errors: NotFound, Invalid, Timeout, Unavailable.
func (b *Builder) Tag(ctx context.Context, id, name, tag string) error {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	engine, err := b.connect()
	if err != nil {
		return err
	}
	if err := engine.ImageTag(ctx, id, name+":"+tag); err != nil {
		return changed(err, "tag image %s as %s:%s", id, name, tag)
	}
	return nil
}

// Untag removes name:tag if it still points to the image with this id. Otherwise it succeeds and does
// nothing. The engine removes an image with its last name. Errors: Conflict, if it is the last name and a
// container was created with it; Timeout; Unavailable.
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

// Delete removes all names of an image, and with them the image. Absent is success. Errors: Conflict, if a container
// was created from it; Timeout; Unavailable.
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

// DeleteUnnamed removes an image that has no name. It keeps an image with a name. Errors: as Delete.
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
	b.cache.Lock() // waiting for it counts towards the caller's deadline, but not towards callTimeout
	defer b.cache.Unlock()
	if _, bounded := ctx.Deadline(); !bounded {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, callTimeout)
		defer cancel()
	}
	engine, err := b.connect()
	if err != nil {
		return err
	}
	_, err = engine.ImageRemove(ctx, ref, dockerapi.ImageRemoveOptions{PruneChildren: true})
	if err != nil && !cerrdefs.IsNotFound(err) {
		return changed(err, "remove image %s", ref)
	}
	return nil
}

// changed is coded for a request that changes the engine. The engine may carry out such a request after its deadline.
func changed(err error, format string, args ...any) error {
	if cerrdefs.IsDeadlineExceeded(err) || cerrdefs.IsCanceled(err) {
		return sandbox.Errorf(sandbox.Timeout, format+": %w", append(args, err)...)
	}
	return coded(err, format, args...)
}

// coded gives an error of the engine a code.
func coded(err error, format string, args ...any) error {
	code := sandbox.Failed
	switch {
	case dockerapi.IsConnectionFailed(err), cerrdefs.IsUnavailable(err), cerrdefs.IsDeadlineExceeded(err),
		cerrdefs.IsCanceled(err):
		code = sandbox.Unavailable
	case cerrdefs.IsNotFound(err):
		code = sandbox.NotFound
	case cerrdefs.IsConflict(err):
		code = sandbox.Conflict
	case cerrdefs.IsInvalidArgument(err):
		code = sandbox.Invalid
	}
	return sandbox.Errorf(code, format+": %w", append(args, dockerapi.Explain(err))...)
}
