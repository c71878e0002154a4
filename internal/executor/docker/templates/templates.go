// Package templates fills the volumes of sandboxes from a template image, which has the guest and the image's content
// of /workspace and /data. It also reads the accounts of images.
package templates

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
	"sync"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/dockerapi"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/driver"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/executor/docker/engine"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/executor/docker/objects"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/guest"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// Template is the initial content of an environment's volumes: the guest, and the image's content of /workspace and
// /data, owned by root. Process 1 hands it over to the sandbox's user.
type Template struct {
	ref   driver.EnvironmentRef
	Image dockerapi.ImageInspect // the image of the sandboxes
	Guest engine.Program         // process 1
	mode  int64                  // the guest's
	hash  string
}

// Templates are the template images on an engine.
type Templates struct {
	engine *engine.Engine

	mu       sync.Mutex               // guards what follows
	accounts map[string]ImageAccounts // by image id
	bare     map[string]bool          // whether templates have only the guest, by reference
	filled   map[string]string        // when filled guest volumes were made, by name
}

// New returns the templates on an engine.
func New(e *engine.Engine) *Templates {
	return &Templates{
		engine: e, accounts: make(map[string]ImageAccounts), bare: make(map[string]bool), filled: make(map[string]string),
	}
}

// remember stores a value in a cache. It empties a full cache first.
func remember[V any](cache map[string]V, key string, value V, most int) {
	if len(cache) >= most {
		clear(cache)
	}
	cache[key] = value
}

// readableMode is the guest's mode for runtimes with their own kernel (gVisor), which only execute readable files.
const readableMode = 0o755

// Of returns the template for sandboxes with a confinement.
func Of(ref driver.EnvironmentRef, img dockerapi.ImageInspect, p engine.Program,
	c sandbox.Confinement) Template {
	s := Template{ref: ref, Image: img, Guest: p, mode: engine.GuestMode}
	if !engine.UsualRuntime(p.RuntimeOf(c)) {
		s.mode = readableMode
	}
	s.hash = objects.Hash(p.Hash, img.ID, fmt.Sprintf("root:%o", s.mode))
	return s
}

// Reference is the name of the template image, by content.
func (s Template) Reference() string {
	repository, tag := objects.TemplateImage(s.ref, s.hash)
	return repository + ":" + tag
}

// GuestVolume is named by content.
func (s Template) GuestVolume() string {
	hash := s.Guest.Hash
	if s.mode != engine.GuestMode {
		hash = objects.Hash(hash, strconv.FormatInt(s.mode, 8))
	}
	return objects.GuestVolume(s.ref, hash)
}

// FindGuest finds the guest volume that Provision created, and returns when the engine made it, or "" if that is
// unknown. The volume's label also proves that this is the specification's engine. So a spawn needs no Info, the
// engine's slowest request.
func (ts *Templates) FindGuest(ctx context.Context, s Template) (made string, err error) {
	labels := objects.EnvironmentLabels(s.ref, objects.RoleGuest)
	v, err := ts.engine.Volume(ctx, s.GuestVolume(), labels)
	if sandbox.CodeOf(err) == sandbox.NotFound { // pruned as unused
		if err := ts.engine.Confirm(ctx, s.ref.Instance); err != nil {
			return "", err
		}
		return "", ts.engine.EnsureVolume(ctx, s.GuestVolume(), labels)
	}
	return v.CreatedAt, err
}

// Ensure creates the template image unless the engine has it.
func (ts *Templates) Ensure(ctx context.Context, s Template) error {
	there, err := ts.engine.FindOwnImage(ctx, s.Reference(), objects.EnvironmentLabels(s.ref, objects.RoleTemplate))
	if there || err != nil {
		return err
	}
	spool, err := os.CreateTemp("", "sandbox-seed-*.tar")
	if err != nil {
		return sandbox.Errorf(sandbox.Failed, "docker: write the volume template of environment %s to a temporary file: "+
			"%w", s.ref.EnvironmentID, err)
	}
	defer func() { _, _ = spool.Close(), os.Remove(spool.Name()) }()
	bare, err := ts.write(ctx, s, spool)
	if err != nil {
		return err
	}
	labels := objects.EnvironmentLabels(s.ref, objects.RoleTemplate)
	labels[objects.LabelBare] = strconv.FormatBool(bare)
	return ts.engine.ImportImage(ctx, s.Reference(), labels, spool)
}

// write writes the content of the template image as a tar stream. bare means that it is only the guest.
func (ts *Templates) write(ctx context.Context, s Template, out io.Writer) (bare bool, err error) {
	tw := tar.NewWriter(out)
	headers := []tar.Header{
		{Typeflag: tar.TypeDir, Name: strings.TrimPrefix(guest.Dir, "/") + "/", Mode: 0o755},
		{Typeflag: tar.TypeReg, Name: strings.TrimPrefix(guest.Path, "/"), Mode: s.mode, Size: int64(len(s.Guest.Binary))},
	}
	for _, root := range sandbox.Roots {
		headers = append(headers, tar.Header{Typeflag: tar.TypeDir, Name: root[1:] + "/", Mode: 0o755})
	}
	for _, h := range headers {
		if err := tw.WriteHeader(&h); err != nil {
			return false, spoolError(s, err)
		}
		if h.Typeflag == tar.TypeReg {
			if _, err := tw.Write(s.Guest.Binary); err != nil {
				return false, spoolError(s, err)
			}
		}
	}
	copied, err := ts.copyRoots(ctx, s, tw)
	if err != nil {
		return false, err
	}
	if err := tw.Close(); err != nil {
		return false, spoolError(s, err)
	}
	return copied == 0, nil
}

func spoolError(s Template, err error) error {
	return sandbox.Errorf(sandbox.Failed, "docker: write the volume template of environment %s: "+
		"%w", s.ref.EnvironmentID, err)
}

// withImage calls read with a container of the image that is never started, so that its content cannot change.
func (ts *Templates) withImage(ctx context.Context, s Template, read func(container, object string) error) error {
	object := "a container of " + s.Image.ID
	made, err := engine.Fetch(ctx, ts.engine, engine.Change("create", object, sandbox.ReasonCreationFailed),
		func(ctx context.Context) (dockerapi.ContainerCreateResponse, error) {
			return ts.engine.API.ContainerCreate(ctx, &dockerapi.ContainerConfig{
				Image: s.Image.ID, Entrypoint: []string{guest.Path},
				Labels: objects.EnvironmentLabels(s.ref, objects.RolePopulator),
			}, &dockerapi.HostConfig{NetworkMode: "none"}, nil, nil, "")
		})
	if err != nil {
		return err
	}
	defer func() {
		if err := ts.engine.RemoveContainer(context.WithoutCancel(ctx), made.ID); err != nil {
			ts.engine.Log.WarnContext(ctx, "docker: a populator could not be removed; it is removed with its environment",
				"environment", s.ref.EnvironmentID, "container", made.ID, "error", err)
		}
	}()
	return read(made.ID, object)
}

// copyRoots copies the image's content of /workspace and /data. n is the number of files and directories.
func (ts *Templates) copyRoots(ctx context.Context, s Template, tw *tar.Writer) (n int, err error) {
	err = ts.withImage(ctx, s, func(container, object string) error {
		for _, root := range sandbox.Roots {
			r := engine.Read("copy "+root+" of", object)
			r.Limit = engine.ImportLimit
			err := ts.engine.Do(ctx, r, func(ctx context.Context) error {
				content, _, err := ts.engine.API.CopyFromContainer(ctx, container, root+"/.")
				if err != nil {
					return err
				}
				defer content.Close()
				entries, err := s.reown(content, tw, root[1:])
				n += entries
				return err
			})
			if err != nil && sandbox.CodeOf(err) != sandbox.NotFound {
				return err
			}
		}
		return nil
	})
	return n, err
}

// reown copies a tar stream to dir and makes root the owner of its entries. n is the number of entries.
func (s Template) reown(in io.Reader, tw *tar.Writer, dir string) (n int, err error) {
	entries := tar.NewReader(in)
	for {
		h, err := entries.Next()
		if errors.Is(err, io.EOF) {
			return n, nil
		}
		if err != nil {
			return n, err
		}
		name := path.Join(dir, h.Name)
		if name == dir || name == sandbox.ConfigFile[1:] {
			continue // the directory itself is ours, and so is config.json
		}
		if h.Typeflag == tar.TypeDir {
			name += "/"
		}
		if h.Typeflag == tar.TypeLink {
			h.Linkname = path.Join(dir, h.Linkname)
		}
		h.Name, h.Uid, h.Gid, h.Uname, h.Gname = name, 0, 0, "", ""
		n++
		if err := tw.WriteHeader(h); err != nil {
			return n, err
		}
		if _, err := io.Copy(tw, entries); err != nil {
			return n, err
		}
	}
}
