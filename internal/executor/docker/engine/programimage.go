package engine

import (
	"archive/tar"
	"bytes"
	"context"
	"errors"
	"path"
	"strings"

	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// ProgramImage is an image with only one of our programs, and an empty directory.
type ProgramImage struct {
	Reference string
	Labels    map[string]string
	// Of names the program's owner in errors: "relay of ledger x".
	Of string
	// Path and Mode are the program's.
	Path string
	Mode int64
	// Root is the empty directory, UserID and GroupID its owner.
	Root            string
	UserID, GroupID int
}

// EnsureProgramImage creates the image unless the engine has it. Errors: as for FindOwnImage and ImportImage.
func (e *Engine) EnsureProgramImage(ctx context.Context, img ProgramImage, p Program) error {
	there, err := e.FindOwnImage(ctx, img.Reference, img.Labels)
	if there || err != nil {
		return err
	}
	var layer bytes.Buffer
	if err := img.write(tar.NewWriter(&layer), p.Binary); err != nil {
		return sandbox.Errorf(sandbox.Failed, "docker: pack the %s: %w", img.Of, err)
	}
	return e.ImportImage(ctx, img.Reference, img.Labels, bytes.NewReader(layer.Bytes()))
}

// write writes the content of the image.
func (img ProgramImage) write(tw *tar.Writer, binary []byte) (err error) {
	for dir := img.Root; dir != "/" && err == nil; dir = path.Dir(dir) {
		h := tar.Header{Typeflag: tar.TypeDir, Name: dir[1:] + "/", Mode: 0o755}
		if dir == img.Root {
			h.Uid, h.Gid = img.UserID, img.GroupID
		}
		err = tw.WriteHeader(&h)
	}
	if err == nil {
		err = tw.WriteHeader(&tar.Header{
			Typeflag: tar.TypeReg, Name: strings.TrimPrefix(img.Path, "/"), Mode: img.Mode, Size: int64(len(binary)),
		})
	}
	if err == nil {
		_, err = tw.Write(binary)
	}
	return errors.Join(err, tw.Close())
}
