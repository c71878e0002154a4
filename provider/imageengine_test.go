package provider_test

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"strings"
	"sync"

	cerrdefs "github.com/containerd/errdefs"
	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/static"
	"github.com/google/go-containerregistry/pkg/v1/types"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/dockerapi"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/image"
)

// imageEngine is an in-memory engine that builds any context, and pushes to and pulls from real registries. The same
// context always becomes the same image, as with a real engine's cache.
type imageEngine struct {
	mu     sync.Mutex
	images []*engineImage
}

var _ image.Engine = (*imageEngine)(nil)

type engineImage struct {
	id      string
	labels  map[string]string
	tags    []string // name:tag
	digests []string // name@digest
	content v1.Image
}

// find returns an image by its id or one of its names.
func (e *imageEngine) find(ref string) (*engineImage, error) {
	i := slices.IndexFunc(e.images, func(i *engineImage) bool {
		return i.id == ref || slices.Contains(i.tags, ref) || slices.Contains(i.digests, ref)
	})
	if i < 0 {
		return nil, fmt.Errorf("no such image: %s: %w", ref, cerrdefs.ErrNotFound)
	}
	return e.images[i], nil
}

// keep stores an image, or returns the existing one.
func (e *imageEngine) keep(i *engineImage) *engineImage {
	if had, err := e.find(i.id); err == nil {
		return had
	}
	e.images = append(e.images, i)
	return i
}

func (e *imageEngine) tag(i *engineImage, ref string) {
	for _, other := range e.images {
		other.tags = slices.DeleteFunc(other.tags, func(t string) bool { return t == ref })
	}
	i.tags = append(i.tags, ref)
}

func (e *imageEngine) ImageBuild(_ context.Context, buildContext io.Reader,
	options dockerapi.BuildOptions) (dockerapi.BuildResponse, error) {
	if buildContext != nil { // the classic builder
		if _, err := io.Copy(io.Discard, buildContext); err != nil {
			return dockerapi.BuildResponse{}, err
		}
	}
	hash := []byte(options.Labels[image.ContextHashLabel])
	content, err := mutate.AppendLayers(empty.Image, static.NewLayer(hash, types.DockerLayer))
	if err != nil {
		return dockerapi.BuildResponse{}, err
	}
	sum := sha256.Sum256(hash)
	e.mu.Lock()
	defer e.mu.Unlock()
	i := e.keep(&engineImage{id: "sha256:" + hex.EncodeToString(sum[:]), labels: options.Labels, content: content})
	for _, ref := range options.Tags {
		e.tag(i, ref)
	}
	return dockerapi.BuildResponse{Body: message(`{"aux": {"ID": %q}}`, i.id)}, nil
}

func message(format string, args ...any) io.ReadCloser {
	return io.NopCloser(strings.NewReader(fmt.Sprintf(format, args...)))
}

func (*imageEngine) BuildCancel(context.Context, string) error { return nil }

// DialHijack opens a session in which the engine requests nothing.
func (*imageEngine) DialHijack(context.Context, string, string, map[string][]string) (net.Conn, error) {
	ours, theirs := net.Pipe()
	go func() { _, _ = io.Copy(io.Discard, ours) }() // until the session closes its end
	return session{theirs}, nil
}

// session is the end of a pipe. Like a network connection, it fails once it is closed, as its reader expects.
type session struct{ net.Conn }

func (s session) Read(p []byte) (int, error) {
	n, err := s.Conn.Read(p)
	if errors.Is(err, io.ErrClosedPipe) {
		err = net.ErrClosed
	}
	return n, err
}

func (e *imageEngine) ImageInspect(_ context.Context, ref string,
	_ ...dockerapi.ImageInspectOption) (dockerapi.ImageInspect, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	i, err := e.find(ref)
	if err != nil {
		return dockerapi.ImageInspect{}, err
	}
	answer, err := json.Marshal(map[string]any{
		"Id": i.id, "RepoTags": i.tags, "RepoDigests": i.digests, "Size": 1,
		"RootFS": map[string]any{"Layers": []string{i.id}}, "Config": map[string]any{"Labels": i.labels},
	})
	if err != nil {
		return dockerapi.ImageInspect{}, err
	}
	var found dockerapi.ImageInspect
	return found, json.Unmarshal(answer, &found)
}

func (e *imageEngine) ImageTag(_ context.Context, source, target string) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	i, err := e.find(source)
	if err != nil {
		return err
	}
	e.tag(i, target)
	return nil
}

func (e *imageEngine) ImagePush(ctx context.Context, ref string,
	_ dockerapi.ImagePushOptions) (io.ReadCloser, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	i, err := e.find(ref)
	if err != nil {
		return nil, err
	}
	parsed, err := name.ParseReference(ref)
	if err != nil {
		return nil, err
	}
	if err := remote.Write(parsed, i.content, remote.WithContext(ctx)); err != nil {
		return nil, err
	}
	digest, err := i.content.Digest()
	if err != nil {
		return nil, err
	}
	i.named(parsed, digest)
	return message(`{"aux": {"Digest": %q}}`, digest), nil
}

// named records the image's digest in a registry.
func (i *engineImage) named(ref name.Reference, digest v1.Hash) {
	if pinned := ref.Context().Name() + "@" + digest.String(); !slices.Contains(i.digests, pinned) {
		i.digests = append(i.digests, pinned)
	}
}

func (e *imageEngine) ImagePull(ctx context.Context, ref string,
	_ dockerapi.ImagePullOptions) (io.ReadCloser, error) {
	parsed, err := name.NewDigest(ref)
	if err != nil {
		return nil, err
	}
	content, err := remote.Image(parsed, remote.WithContext(ctx))
	if err != nil {
		return nil, err
	}
	id, err := content.ConfigName()
	if err != nil {
		return nil, err
	}
	digest, err := v1.NewHash(parsed.DigestStr())
	if err != nil {
		return nil, err
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	e.keep(&engineImage{id: id.String(), content: content}).named(parsed, digest)
	return message(`{"status": "Pulled"}`), nil
}

func (*imageEngine) ImageSave(context.Context, []string, ...dockerapi.ImageSaveOption) (io.ReadCloser, error) {
	return nil, errors.New("no image is saved here")
}

// ImageRemove removes a name of an image. With the last name, or by id, it removes the image.
func (e *imageEngine) ImageRemove(_ context.Context, ref string,
	_ dockerapi.ImageRemoveOptions) ([]dockerapi.ImageDeleteResponse, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	i, err := e.find(ref)
	if err != nil {
		return nil, err
	}
	other := func(of string) bool { return of == ref }
	i.tags, i.digests = slices.DeleteFunc(i.tags, other), slices.DeleteFunc(i.digests, other)
	if ref == i.id || len(i.tags)+len(i.digests) == 0 {
		e.images = slices.DeleteFunc(e.images, func(of *engineImage) bool { return of == i })
	}
	return nil, nil
}

func (*imageEngine) Info(context.Context) (dockerapi.Info, error) {
	return dockerapi.Info{ID: "engine"}, nil
}

func (*imageEngine) Ping(context.Context) (dockerapi.Ping, error) {
	return dockerapi.Ping{APIVersion: "1.47", OSType: "linux"}, nil
}
