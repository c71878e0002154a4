package localaccount

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"
	"time"

	cerrdefs "github.com/containerd/errdefs"
	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/v1/tarball"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/dockerapi"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/executor/cloudflare/localapi"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/image/registry"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// loadLimit bounds the time to load an image from the account's registry into the engine.
const loadLimit = 10 * time.Minute

// images loads images of the account's registry into the engine that runs them.
type images struct {
	host    string // the registry's address
	api     *localapi.Server
	engine  *dockerapi.Client
	shelled *shelled
	name    string // the name on the engine of this account's images only

	mu     sync.Mutex // guards loaded, and lets one image be loaded at a time
	loaded map[string]string
}

func newImages(engine *dockerapi.Client, host string) *images {
	return &images{
		host: host, engine: engine, shelled: &shelled{engine: engine, made: map[string]string{}},
		name: "sandbox-cloudflare-local/" + sandbox.RandomIDs(12), loaded: map[string]string{},
	}
}

// ofReference returns the image to run for a deployment's image.
func (l *images) ofReference(ctx context.Context, reference string) (string, error) {
	loaded, err := l.load(ctx, reference)
	if err != nil {
		return "", err
	}
	return l.shelled.image(ctx, loaded)
}

// load loads an image of the registry into the engine, and returns the engine's name for it.
func (l *images) load(ctx context.Context, reference string) (string, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if there := l.loaded[reference]; there != "" {
		return there, nil
	}
	ctx, cancel := context.WithTimeout(ctx, loadLimit)
	defer cancel()
	_, path, _ := strings.Cut(reference, "/") // whatever address the registry has
	img, err := l.registry().Open(ctx, l.host+"/"+path, "linux/amd64")
	if err != nil {
		return "", err
	}
	_, digest, _ := strings.Cut(reference, "@sha256:")
	if _, err := hex.DecodeString(digest); err != nil || len(digest) < 12 {
		return "", fmt.Errorf("image %s has no digest", reference)
	}
	tag, err := name.NewTag(l.name + ":" + digest[:12])
	if err != nil {
		return "", err
	}
	packed, pack := io.Pipe()
	go func() { pack.CloseWithError(tarball.Write(tag, img, pack)) }() // ends with the pipe
	defer packed.Close()
	answer, err := l.engine.ImageLoad(ctx, packed)
	if err != nil {
		return "", fmt.Errorf("load image %s into the Docker Engine: %w", reference, err)
	}
	defer answer.Body.Close()
	if err := dockerapi.Finish(answer.Body); err != nil {
		return "", fmt.Errorf("load image %s into the Docker Engine: %w", reference, err)
	}
	l.loaded[reference] = l.name + ":" + digest[:12]
	return l.loaded[reference], nil
}

func (l *images) registry() *registry.Client {
	return registry.New(nil).With(l.host, func(context.Context) (string, sandbox.Secret, error) {
		username, password := l.api.Credentials(ID, loadLimit)
		return username, sandbox.Secret(password), nil
	})
}

// close removes the loaded images. No container may use them any more.
func (l *images) close() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	ctx, cancel := context.WithTimeout(context.Background(), removeLimit)
	defer cancel()
	errs := []error{l.shelled.close()}
	for _, ref := range l.loaded {
		_, err := l.engine.ImageRemove(ctx, ref, dockerapi.ImageRemoveOptions{Force: true, PruneChildren: true})
		if err != nil && !cerrdefs.IsNotFound(err) {
			errs = append(errs, fmt.Errorf("remove image %s: %w", ref, err))
		}
	}
	clear(l.loaded)
	return errors.Join(append(errs, l.engine.Close())...)
}
