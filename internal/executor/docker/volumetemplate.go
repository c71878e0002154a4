package docker

import (
	"archive/tar"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"strconv"
	"strings"

	cerrdefs "github.com/containerd/errdefs"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/dockerapi"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/driver"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/executor/docker/objects"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/guest"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// volumeTemplate is the initial content of an environment's volumes: the guest, and for /workspace and /data
// the image's content there, owned by root. Process 1 hands it over to the sandbox's user.
type volumeTemplate struct {
	ref   driver.EnvironmentRef
	image dockerapi.ImageInspect // the image of the sandboxes
	guest program
	mode  int64 // of the guest
	hash  string
}

// guestMode lets a sandbox execute the guest but not read it; its shells execute it to report their state.
// Runtimes with their own kernel (gVisor) can only execute readable files: readableMode.
const (
	guestMode    = 0o711
	readableMode = 0o755
)

// newVolumeTemplate returns the template for sandboxes with a confinement.
func newVolumeTemplate(ref driver.EnvironmentRef, img dockerapi.ImageInspect, p program,
	c sandbox.Confinement) volumeTemplate {
	s := volumeTemplate{ref: ref, image: img, guest: p, mode: guestMode}
	if !usual(p.runtimeOf(c)) {
		s.mode = readableMode
	}
	s.hash = objects.Hash(p.hash, img.ID, fmt.Sprintf("root:%o", s.mode))
	return s
}

func (s volumeTemplate) reference() string {
	repository, tag := objects.TemplateImage(s.ref, s.hash)
	return repository + ":" + tag
}

// volume is named by content.
func (s volumeTemplate) volume() string {
	hash := s.guest.hash
	if s.mode != guestMode {
		hash = objects.Hash(hash, strconv.FormatInt(s.mode, 8))
	}
	return objects.GuestVolume(s.ref, hash)
}

// ensureTemplate creates the template image unless the engine has it.
func (e *Executor) ensureTemplate(ctx context.Context, s volumeTemplate) error {
	there, err := e.findOwnImage(ctx, s.reference(), objects.EnvironmentLabels(s.ref, objects.RoleTemplate))
	if there || err != nil {
		return err
	}
	spool, err := os.CreateTemp("", "sandbox-seed-*.tar")
	if err != nil {
		return sandbox.Errorf(sandbox.Failed, "docker: write the volume template of environment %s to a temporary file: "+
			"%w", s.ref.EnvironmentID, err)
	}
	defer func() { _, _ = spool.Close(), os.Remove(spool.Name()) }()
	if err := e.writeTemplate(ctx, s, spool); err != nil {
		return err
	}
	return e.importTemplate(ctx, s, spool)
}

// findOwnImage reports whether the engine has one of our images. Errors: as checkLabels.
func (e *Executor) findOwnImage(ctx context.Context, reference string, labels map[string]string) (bool, error) {
	have, err := e.inspectImage(ctx, reference)
	if isCode(err, sandbox.NotFound) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	return true, e.checkLabels("image", reference, labelsOf(have), labels)
}

func (e *Executor) importTemplate(ctx context.Context, s volumeTemplate, content io.ReadSeeker) error {
	return e.importImage(ctx, s.reference(), objects.EnvironmentLabels(s.ref, objects.RoleTemplate), content)
}

// importImage creates an image with one layer, a tar stream.
func (e *Executor) importImage(ctx context.Context, reference string, labels map[string]string,
	content io.ReadSeeker) error {
	opts := dockerapi.ImageImportOptions{Message: labels[objects.LabelRole] + " of ledger " + labels[objects.LabelLedger]}
	for k, v := range labels {
		opts.Changes = append(opts.Changes, fmt.Sprintf("LABEL %s=%q", k, v))
	}
	r := change("import image", reference, sandbox.ReasonCreationFailed)
	r.limit = importLimit
	return e.do(ctx, r, func(ctx context.Context) error {
		if _, err := content.Seek(0, io.SeekStart); err != nil {
			return err
		}
		answer, err := e.api.ImageImport(ctx, dockerapi.ImageImportSource{Source: content, SourceName: "-"}, reference, opts)
		if err != nil {
			return err
		}
		defer answer.Close()
		// A failed import returns its error in the answer, after the status.
		if err := dockerapi.Finish(answer); err != nil {
			return fmt.Errorf("%w: %w", cerrdefs.ErrInternal, err)
		}
		return nil
	})
}

// writeTemplate writes the content of the template image as a tar stream.
func (e *Executor) writeTemplate(ctx context.Context, s volumeTemplate, out io.Writer) error {
	tw := tar.NewWriter(out)
	headers := []tar.Header{
		{Typeflag: tar.TypeDir, Name: strings.TrimPrefix(guest.Dir, "/") + "/", Mode: 0o755},
		{Typeflag: tar.TypeReg, Name: strings.TrimPrefix(guest.Path, "/"), Mode: s.mode, Size: int64(len(s.guest.binary))},
	}
	for _, root := range sandbox.Roots {
		headers = append(headers, tar.Header{Typeflag: tar.TypeDir, Name: root[1:] + "/", Mode: 0o755})
	}
	for _, h := range headers {
		if err := tw.WriteHeader(&h); err != nil {
			return spoolError(s, err)
		}
		if h.Typeflag == tar.TypeReg {
			if _, err := tw.Write(s.guest.binary); err != nil {
				return spoolError(s, err)
			}
		}
	}
	if err := e.copyRoots(ctx, s, tw); err != nil {
		return err
	}
	if err := tw.Close(); err != nil {
		return spoolError(s, err)
	}
	return nil
}

func spoolError(s volumeTemplate, err error) error {
	return sandbox.Errorf(sandbox.Failed, "docker: write the volume template of environment %s: "+
		"%w", s.ref.EnvironmentID, err)
}

// withImage calls read with a container of the image that is never started, so that its content cannot
// change.
func (e *Executor) withImage(ctx context.Context, s volumeTemplate, read func(container, object string) error) error {
	object := "a container of " + s.image.ID
	made, err := fetch(ctx, e, change("create", object, sandbox.ReasonCreationFailed),
		func(ctx context.Context) (dockerapi.ContainerCreateResponse, error) {
			return e.api.ContainerCreate(ctx, &dockerapi.ContainerConfig{
				Image: s.image.ID, Entrypoint: []string{guest.Path}, Labels: objects.EnvironmentLabels(s.ref, objects.RolePopulator),
			}, &dockerapi.HostConfig{NetworkMode: "none"}, nil, nil, "")
		})
	if err != nil {
		return err
	}
	defer func() {
		if err := e.removeContainer(context.WithoutCancel(ctx), made.ID); err != nil {
			e.log.WarnContext(ctx, "docker: a populator could not be removed; it is removed with its environment",
				"environment", s.ref.EnvironmentID, "container", made.ID, "error", err)
		}
	}()
	return read(made.ID, object)
}

// copyRoots copies the image's content of /workspace and /data.
func (e *Executor) copyRoots(ctx context.Context, s volumeTemplate, tw *tar.Writer) error {
	return e.withImage(ctx, s, func(container, object string) error {
		for _, root := range sandbox.Roots {
			r := read("copy "+root+" of", object)
			r.limit = importLimit
			err := e.do(ctx, r, func(ctx context.Context) error {
				content, _, err := e.api.CopyFromContainer(ctx, container, root+"/.")
				if err != nil {
					return err
				}
				defer content.Close()
				return s.reown(content, tw, root[1:])
			})
			if err != nil && !isCode(err, sandbox.NotFound) {
				return err
			}
		}
		return nil
	})
}

// reown copies a tar stream to dir and makes root the owner of its entries.
func (s volumeTemplate) reown(in io.Reader, tw *tar.Writer, dir string) error {
	entries := tar.NewReader(in)
	for {
		h, err := entries.Next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		name := path.Join(dir, h.Name)
		if name == dir || name == "workspace/config.json" {
			continue // the directory itself is ours, and so is config.json
		}
		if h.Typeflag == tar.TypeDir {
			name += "/"
		}
		if h.Typeflag == tar.TypeLink {
			h.Linkname = path.Join(dir, h.Linkname)
		}
		h.Name, h.Uid, h.Gid, h.Uname, h.Gname = name, 0, 0, "", ""
		if err := tw.WriteHeader(h); err != nil {
			return err
		}
		if _, err := io.Copy(tw, entries); err != nil {
			return err
		}
	}
}
