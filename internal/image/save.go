package image

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/tarball"

	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// Saved is an image that was saved from an engine to a file. Close removes the file.
type Saved struct {
	v1.Image
	file string
}

// Close removes the file.
func (s *Saved) Close() error { return os.Remove(s.file) }

// Save saves an image of the engine, by reference or id, to a file in the temporary directory. Only ctx
// limits its time. Errors: NotFound; Failed, if the disk is full; Unavailable, Timeout.
func (b *Builder) Save(ctx context.Context, ref string) (_ *Saved, err error) {
	found, err := b.Inspect(ctx, ref) // not every engine returns an error when it saves a missing image
	if err != nil {
		return nil, err
	}
	engine, err := b.connect()
	if err != nil {
		return nil, err
	}
	stream, err := engine.ImageSave(ctx, []string{found.ID})
	if err != nil {
		return nil, coded(err, "save image %s", ref)
	}
	defer func() { _ = stream.Close() }() // read to its end, or abandoned
	file, err := os.CreateTemp("", "sandbox-image-")
	if err != nil {
		return nil, sandbox.Errorf(sandbox.Failed, "save image %s: %w", ref, err)
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, os.Remove(file.Name()))
		}
	}()
	if err := errors.Join(fill(file, stream), file.Close()); err != nil {
		return nil, saveFailed(ctx, ref, err)
	}
	img, err := tarball.ImageFromPath(file.Name(), nil)
	if err != nil {
		return nil, sandbox.Errorf(sandbox.Unavailable, "save image %s: the engine's stream is incomplete: %w", ref, err)
	}
	return &Saved{img, file.Name()}, nil
}

// errStore is a failure to write the file, not to receive the image.
var errStore = errors.New("the temporary file cannot be written; set TMPDIR to a directory with more space")

func fill(file *os.File, stream io.Reader) error {
	_, err := io.Copy(storing{file}, stream)
	return err
}

type storing struct{ file *os.File }

func (s storing) Write(p []byte) (int, error) {
	n, err := s.file.Write(p)
	if err != nil {
		err = fmt.Errorf("%w: %w", errStore, err)
	}
	return n, err
}

func saveFailed(ctx context.Context, ref string, err error) error {
	code := sandbox.Unavailable
	switch {
	case ctx.Err() != nil:
		code = sandbox.Timeout
	case errors.Is(err, errStore):
		code = sandbox.Failed
	}
	return sandbox.Errorf(code, "save image %s: %w", ref, err)
}
