package inside

import (
	"archive/tar"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"github.com/sandbox-lease/terraform-provider-sandbox/reconciler/cli/console"
	"github.com/sandbox-lease/terraform-provider-sandbox/reconciler/cli/exit"
	"github.com/sandbox-lease/terraform-provider-sandbox/reconciler/client"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

func cp(c *console.Console) *cobra.Command {
	return &cobra.Command{
		Use:   "cp <source> <destination>",
		Short: "Copy files and directories to and from a sandbox",
		Long: `Copy a file or a directory to or from a lease's sandbox. One side is on this machine, the other is LEASE:PATH,
with a path in /workspace or /data; a relative one starts at /workspace. A destination that is a directory gets the
source into it, another destination is the copy's name. A local path with a colon needs ./ before it.

Files, directories and symlinks are copied, with their permissions but not with their owners. A copy wakes the sandbox
and counts as activity.`,
		Example: `  sandbox cp maps ada@catan-7:/data/maps
  sandbox cp ada@catan-7:results.json .`,
		Args: console.Exactly("source", "destination"),
		RunE: func(cmd *cobra.Command, args []string) error {
			from, inSandbox := parseRemote(args[0])
			to, intoSandbox := parseRemote(args[1])
			if inSandbox == intoSandbox {
				return exit.Usagef("cp %s %s: exactly one side must be in a sandbox, such as ada@catan-7:/data/maps",
					args[0], args[1])
			}
			lease := from.lease + to.lease // one is ""
			service, id, err := c.ConnectTo(cmd, lease)
			if err != nil {
				return err
			}
			ref := sandbox.LeaseRef{ID: id}
			if inSandbox {
				return download(cmd.Context(), service, ref, from.path, args[1])
			}
			return upload(cmd.Context(), service, ref, args[0], to.path)
		},
	}
}

// remote is a path in a sandbox.
type remote struct{ lease, path string }

// parseRemote splits LEASE:PATH. A lease id also contains colons: the first colon after its environment precedes the
// path.
func parseRemote(text string) (remote, bool) {
	if strings.HasPrefix(text, ".") || filepath.IsAbs(text) {
		return remote{}, false
	}
	environment := strings.LastIndex(text[:max(0, strings.IndexByte(text+"/", '/'))], "::")
	begin := environment + len("::")
	if environment < 0 {
		if begin = strings.IndexByte(text, '@'); begin < 0 {
			return remote{}, false
		}
	}
	colon := strings.IndexByte(text[begin:], ':')
	if colon < 0 {
		return remote{}, false
	}
	return remote{lease: text[:begin+colon], path: text[begin+colon+1:]}, true
}

// upload copies a local file or directory into a sandbox.
func upload(ctx context.Context, service *client.Client, ref sandbox.LeaseRef, local, into string) error {
	if _, err := os.Lstat(local); err != nil {
		return exit.Usagef("%w", err)
	}
	clean, err := sandbox.CleanPath(into)
	if err != nil {
		return exit.Usagef("%s", err)
	}
	dir, name := path.Split(clean)
	isDir := strings.HasSuffix(into, "/") || into == "" || path.Dir(clean) == "/" // a root is a directory
	if !isDir {
		info, err := service.StatFile(ctx, ref, clean)
		if err != nil && sandbox.CodeOf(err) != sandbox.NotFound {
			return err
		}
		isDir = err == nil && info.Type == sandbox.FileDirectory
	}
	if isDir {
		full, err := filepath.Abs(local)
		if err != nil {
			return exit.Usagef("%w", err)
		}
		dir, name = clean, filepath.Base(full)
	}
	r, w := io.Pipe()
	packed := make(chan error, 1)
	go func() { // ends once r is closed
		err := pack(w, local, name)
		w.CloseWithError(err)
		packed <- err
	}()
	err = service.WriteFiles(ctx, ref, dir, r)
	_ = r.Close() // never fails
	if failed := <-packed; failed != nil && !errors.Is(failed, io.ErrClosedPipe) {
		return sandbox.Errorf(sandbox.Failed, "reading %s: %w", local, failed)
	}
	return err
}

// pack writes a file or directory as a tar stream, under a name.
func pack(w io.Writer, local, name string) error {
	archive := tar.NewWriter(w)
	err := filepath.WalkDir(local, func(file string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		below, err := filepath.Rel(local, file)
		if err != nil {
			return err
		}
		info, err := entry.Info()
		if err != nil {
			return err
		}
		return packFile(archive, file, path.Join(name, filepath.ToSlash(below)), info)
	})
	return errors.Join(err, archive.Close())
}

func packFile(archive *tar.Writer, file, name string, info fs.FileInfo) error {
	h := &tar.Header{Name: name, Mode: int64(info.Mode().Perm()), ModTime: info.ModTime()}
	switch {
	case info.IsDir():
		h.Typeflag, h.Name = tar.TypeDir, name+"/"
	case info.Mode().IsRegular():
		h.Typeflag, h.Size = tar.TypeReg, info.Size()
	case info.Mode()&fs.ModeSymlink != 0:
		target, err := os.Readlink(file)
		if err != nil {
			return err
		}
		h.Typeflag, h.Linkname = tar.TypeSymlink, target
	default:
		return nil // do not copy pipes, sockets and devices
	}
	if err := archive.WriteHeader(h); err != nil || h.Typeflag != tar.TypeReg {
		return err
	}
	f, err := os.Open(file) // #nosec G304 -- the user names the file
	if err != nil {
		return err
	}
	_, err = io.Copy(archive, f)
	return errors.Join(err, f.Close())
}

// download copies a file or directory of a sandbox to this machine.
func download(ctx context.Context, service *client.Client, ref sandbox.LeaseRef, from, local string) error {
	info, err := os.Stat(local)
	dir, name := filepath.Split(local)
	switch {
	case err == nil && info.IsDir():
		dir, name = local, ""
	case err != nil && !errors.Is(err, fs.ErrNotExist):
		return exit.Usagef("%w", err)
	case name == "":
		return exit.Usagef("%s: no such directory", local)
	}
	if dir == "" {
		dir = "."
	}
	// The sandbox is not trusted: no name and no symlink of its archive leads out of the directory.
	root, err := os.OpenRoot(dir)
	if err != nil {
		return exit.Usagef("%w", err)
	}
	defer func() { _ = root.Close() }() // closes only the directory
	content, err := service.ReadFiles(ctx, ref, from)
	if err != nil {
		return err
	}
	if err := errors.Join(unpack(tar.NewReader(content), root, name), content.Close()); err != nil {
		return sandbox.Errorf(sandbox.Failed, "copying %s to %s: %w", from, local, err)
	}
	return nil
}

// unpack writes an archive into a directory. name, unless "", replaces the first element of each path.
func unpack(archive *tar.Reader, root *os.Root, name string) error {
	for {
		h, err := archive.Next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		file := path.Clean(h.Name)
		if name != "" {
			_, below, _ := strings.Cut(file, "/")
			file = path.Join(name, below)
		}
		if err := unpackFile(archive, root, filepath.FromSlash(file), h); err != nil {
			return err
		}
	}
}

func unpackFile(archive io.Reader, root *os.Root, file string, h *tar.Header) error {
	mode := h.FileInfo().Mode().Perm()
	switch h.Typeflag {
	case tar.TypeDir:
		return root.MkdirAll(file, mode|0o700) // so that its files can be written
	case tar.TypeSymlink:
		if err := root.Remove(file); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		return root.Symlink(h.Linkname, file)
	case tar.TypeReg:
		if err := root.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			return err
		}
		f, err := root.OpenFile(file, os.O_CREATE|os.O_WRONLY|os.O_TRUNC, mode)
		if err != nil {
			return err
		}
		_, err = io.Copy(f, archive) // #nosec G110 -- the archive is not compressed
		return errors.Join(err, f.Close())
	default:
		return fmt.Errorf("%s has the type %c, which cp does not copy", h.Name, h.Typeflag)
	}
}
