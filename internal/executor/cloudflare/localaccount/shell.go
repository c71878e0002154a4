package localaccount

import (
	"archive/tar"
	"bytes"
	"context"
	_ "embed"
	"errors"
	"fmt"
	"sync"
	"time"

	cerrdefs "github.com/containerd/errdefs"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/dockerapi"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

//go:embed shell/main.go
var shellSource []byte

// removeLimit bounds the removal of the images that were made.
const removeLimit = time.Minute

// shelled adds /bin/sh and /tmp to images that have no /bin/sh: local workerd runs every command with it, and that
// command writes to /tmp.
type shelled struct {
	engine *dockerapi.Client

	mu   sync.Mutex // guards what follows, and lets one image be made at a time
	made map[string]string
}

// image returns the image to run: the same one, or a copy with a shell.
func (s *shelled) image(ctx context.Context, id string) (string, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if made, there := s.made[id]; there {
		return made, nil
	}
	made, err := s.make(ctx, id)
	if err != nil {
		return "", fmt.Errorf("look for a shell in image %s: %w", id, err)
	}
	s.made[id] = made
	return made, nil
}

func (s *shelled) make(ctx context.Context, id string) (ref string, err error) {
	box, err := s.engine.ContainerCreate(ctx,
		&dockerapi.ContainerConfig{Image: id, Cmd: []string{"none"}}, nil, nil, nil, "")
	if err != nil {
		return "", err
	}
	defer func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), removeLimit)
		defer cancel()
		err = errors.Join(err, s.engine.ContainerRemove(ctx, box.ID, dockerapi.ContainerRemoveOptions{Force: true}))
	}()
	if _, err := s.engine.ContainerStatPath(ctx, box.ID, "/bin/sh"); !cerrdefs.IsNotFound(err) {
		return id, err
	}
	files, err := s.files(ctx)
	if err != nil {
		return "", err
	}
	if err := s.engine.CopyToContainer(ctx, box.ID, "/", files, dockerapi.CopyToContainerOptions{}); err != nil {
		return "", err
	}
	ref = "sandbox-cloudflare-local/shelled:" + sandbox.RandomIDs(12)
	_, err = s.engine.ContainerCommit(ctx, box.ID, dockerapi.CommitOptions{Reference: ref})
	return ref, err
}

// files returns the shell and /tmp as an archive.
func (s *shelled) files(ctx context.Context) (*bytes.Buffer, error) {
	version, err := s.engine.ServerVersion(ctx)
	if err != nil {
		return nil, err
	}
	program, err := compile(ctx, map[string]string{"main.go": string(shellSource)}, version.Arch)
	if err != nil {
		return nil, err
	}
	var b bytes.Buffer
	archive := tar.NewWriter(&b)
	for _, h := range []tar.Header{
		{Typeflag: tar.TypeDir, Name: "bin/", Mode: 0o755},
		{Typeflag: tar.TypeDir, Name: "tmp/", Mode: 0o1777},
		{Typeflag: tar.TypeReg, Name: "bin/sh", Mode: 0o755, Size: int64(len(program))},
	} {
		if err := archive.WriteHeader(&h); err != nil {
			return nil, err
		}
	}
	if _, err := archive.Write(program); err != nil {
		return nil, err
	}
	return &b, archive.Close()
}

// close removes the images that were made.
func (s *shelled) close() error {
	ctx, cancel := context.WithTimeout(context.Background(), removeLimit)
	defer cancel()
	var all error
	for id, made := range s.made {
		if made == id {
			continue
		}
		if _, err := s.engine.ImageRemove(ctx, made, dockerapi.ImageRemoveOptions{}); err != nil &&
			!cerrdefs.IsNotFound(err) {
			all = errors.Join(all, fmt.Errorf("remove image %s: %w", made, err))
		}
	}
	return all
}
