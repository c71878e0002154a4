//go:build linux

package main

import (
	"cmp"
	"crypto/rand"
	"encoding/json"
	"errors"
	"io"
	"io/fs"
	"os"
	"path"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/guest/wire"
)

// runFile works on one path. os.Root sees to it that no link leads out of the path's root, also one
// that is put in the way meanwhile.
func runFile(request string, in io.Reader, out io.Writer) error {
	var r wire.FileRequest
	if err := json.Unmarshal([]byte(request), &r); err != nil {
		return refuse("the request cannot be read: %v", err)
	}
	root, rel, err := openRoot(string(r.Path))
	if err != nil {
		return err
	}
	defer root.Close()
	switch r.Op {
	case wire.FileStat:
		return statFile(root, rel, path.Base(path.Clean(string(r.Path))), out)
	case wire.FileList:
		return listFiles(root, rel, string(r.After), r.Limit, out)
	case wire.FileWrite:
		return writeFile(root, rel, fs.FileMode(r.Mode), in)
	case wire.FileRemove:
		return removeFile(root, rel, r.Recursive)
	case wire.FileUsage:
		return diskUsage(root, rel, r.Limit, out)
	default:
		return refuse("there is no file operation %q", r.Op)
	}
}

func statFile(root *os.Root, rel, name string, out io.Writer) error {
	info, err := describe(root, rel, name)
	if err != nil {
		return err
	}
	return json.NewEncoder(out).Encode(info)
}

func describe(root *os.Root, rel, name string) (wire.FileInfo, error) {
	info, err := root.Lstat(rel)
	if err != nil {
		return wire.FileInfo{}, err
	}
	w := wire.FileInfo{Name: []byte(name), Type: "other", Mode: uint32(info.Mode().Perm()), Modified: info.ModTime().UTC()}
	switch {
	case info.Mode().IsRegular():
		w.Type, w.Size = "file", info.Size()
	case info.IsDir():
		w.Type = "directory"
	case info.Mode()&fs.ModeSymlink != 0:
		target, err := root.Readlink(rel)
		if err != nil {
			return wire.FileInfo{}, err
		}
		w.Type, w.Target = "symlink", []byte(target)
	}
	return w, nil
}

// listFiles describes the first limit names after a name. What goes meanwhile is left out.
func listFiles(root *os.Root, rel, after string, limit int, out io.Writer) error {
	dir, err := root.OpenRoot(rel)
	if errors.Is(err, unix.ENOTDIR) {
		return refuse("%s is no directory", rel)
	}
	if err != nil {
		return err
	}
	defer dir.Close()
	names, err := firstNames(dir, after, limit)
	if err != nil {
		return err
	}
	encoder := json.NewEncoder(out)
	for _, name := range names {
		info, err := describe(dir, name, name)
		if errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.EINVAL) { // gone, or a link no more
			continue
		}
		if err != nil {
			return err
		}
		if err := encoder.Encode(info); err != nil {
			return err
		}
	}
	return nil
}

// firstNames returns the smallest names after one, in order. It keeps no more in memory than those:
// sandboxed code may fill a directory with millions.
func firstNames(dir *os.Root, after string, limit int) ([]string, error) {
	d, err := dir.Open(".")
	if err != nil {
		return nil, err
	}
	defer d.Close()
	var first []string
	for {
		batch, err := d.Readdirnames(1024)
		for _, name := range batch {
			if name > after {
				first = append(first, name)
			}
		}
		slices.Sort(first)
		first = first[:min(len(first), limit)]
		if errors.Is(err, io.EOF) {
			return first, nil
		}
		if err != nil {
			return nil, err
		}
	}
}

// writeFile puts what a wire.Writer wrote to in under a path, whole or not at all.
func writeFile(root *os.Root, rel string, mode fs.FileMode, in io.Reader) error {
	name := path.Base(rel)
	if err := root.MkdirAll(path.Dir(rel), 0o755); err != nil {
		return err
	}
	dir, err := root.OpenRoot(path.Dir(rel))
	if err != nil {
		return err
	}
	defer dir.Close()
	if info, err := dir.Lstat(name); err == nil && info.IsDir() {
		return refuse("a directory is in the way")
	}
	unfinished := ".unfinished-" + rand.Text()
	f, err := dir.OpenFile(unfinished, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	err = copyContent(f, in)
	if err = cmp.Or(err, f.Chmod(mode), f.Close()); err == nil {
		err = dir.Rename(unfinished, name)
	}
	if err != nil {
		return errors.Join(err, dir.Remove(unfinished))
	}
	return nil
}

// copyContent copies content, and fails when its sender could not send all of it.
func copyContent(to io.Writer, in io.Reader) error {
	content := &wire.Demux{Stdout: to}
	if _, err := io.Copy(content, in); err != nil {
		return err
	}
	r, ok := content.Result()
	switch {
	case !ok:
		return errors.New("the content was cut off; nothing was changed")
	case r.Problem != "":
		return errors.New(r.Message + "; nothing was changed")
	}
	return nil
}

func removeFile(root *os.Root, rel string, recursive bool) error {
	if rel == "." {
		return refuse("it is one of the directories that a sandbox always has")
	}
	if _, err := root.Lstat(rel); err != nil {
		return err
	}
	if recursive {
		return root.RemoveAll(rel)
	}
	return root.Remove(rel)
}
