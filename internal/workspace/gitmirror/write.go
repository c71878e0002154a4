package gitmirror

import (
	"archive/tar"
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"path"
	"path/filepath"
	"time"

	"github.com/go-git/go-git/v5/plumbing"
	"github.com/go-git/go-git/v5/plumbing/filemode"
	"github.com/go-git/go-git/v5/plumbing/format/index"

	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// Tar returns the checkout as a tar stream: the files, and a directory .git with one branch, no hook and no credential.
// The caller closes it before the checkout.
func (c *Checkout) Tar(ctx context.Context, branch string) io.ReadCloser {
	pr, pw := io.Pipe()
	done := make(chan struct{})
	go func() { // ends with the stream
		defer close(done)
		w := &writer{ctx: ctx, tar: tar.NewWriter(pw), buffer: make([]byte, 128<<10)}
		_ = pw.CloseWithError(w.all(c, branch))
	}()
	return stream{pr, done}
}

// stream is a tar stream. Close waits until its writer has ended.
type stream struct {
	*io.PipeReader
	done chan struct{}
}

func (s stream) Close() error {
	err := s.PipeReader.Close()
	<-s.done
	return err
}

type writer struct {
	ctx    context.Context //nolint:containedctx // it exists for one stream
	tar    *tar.Writer
	buffer []byte
	at     time.Time
}

// all writes the whole stream.
func (w *writer) all(c *Checkout, branch string) (err error) {
	defer recovered(&err)
	if err := w.checkout(c, "", branch); err != nil {
		return err
	}
	return w.tar.Close()
}

// checkout writes one repository below a directory.
func (w *writer) checkout(c *Checkout, dir, branch string) error {
	w.at = c.commit.Committer.When
	if w.at.Before(time.Unix(0, 0)) || w.at.After(time.Now()) {
		w.at = time.Unix(0, 0)
	}
	if err := w.gitDirectory(c, path.Join(dir, ".git"), branch); err != nil {
		return err
	}
	for _, e := range c.entries {
		if err := w.entry(c, dir, e); err != nil {
			return err
		}
	}
	for _, sub := range c.subs {
		if err := w.checkout(sub.Checkout, path.Join(dir, sub.at), ""); err != nil {
			return err
		}
	}
	return nil
}

func (w *writer) entry(c *Checkout, dir string, e entry) error {
	if err := w.ctx.Err(); err != nil {
		return sandbox.Errorf(sandbox.Unavailable, "writing the workspace: %w", err)
	}
	h := &tar.Header{Typeflag: tar.TypeReg, Name: path.Join(dir, e.path), Mode: 0o644, Size: e.size, ModTime: w.at}
	switch {
	case e.leaves:
		return nil
	case e.mode == filemode.Submodule:
		return w.tar.WriteHeader(&tar.Header{Typeflag: tar.TypeDir, Name: h.Name + "/", Mode: 0o755, ModTime: w.at})
	case e.mode == filemode.Symlink:
		h.Typeflag, h.Linkname, h.Size, h.Mode = tar.TypeSymlink, e.link, 0, 0o777
		return w.tar.WriteHeader(h)
	case e.mode == filemode.Executable:
		h.Mode = 0o755
	}
	o, err := c.objects.EncodedObject(plumbing.BlobObject, e.hash)
	if err != nil {
		return sandbox.Errorf(sandbox.Failed, "file %q cannot be read: %w", e.path, err)
	}
	r, err := o.Reader()
	if err != nil {
		return sandbox.Errorf(sandbox.Failed, "file %q cannot be read: %w", e.path, err)
	}
	err = w.tar.WriteHeader(h)
	if err == nil {
		_, err = io.CopyBuffer(w.tar, r, w.buffer)
	}
	_ = r.Close() // only read
	return err
}

// gitDirectory writes .git. An empty branch leaves HEAD at the commit.
func (w *writer) gitDirectory(c *Checkout, dir, branch string) error {
	head := c.Commit + "\n"
	if branch != "" {
		head = "ref: refs/heads/" + branch + "\n"
		if err := w.file(path.Join(dir, "refs/heads", branch), c.Commit+"\n"); err != nil {
			return err
		}
	}
	files := [][2]string{
		{"HEAD", head},
		{"config", configOf(c)},
		{"description", "A workspace of a sandbox.\n"},
	}
	if c.RefBranch != "" {
		files = append(files, [2]string{"packed-refs", fmt.Sprintf("# pack-refs with: peeled fully-peeled sorted \n%s %s\n",
			c.Commit, "refs/remotes/origin/"+c.RefBranch)})
	}
	if len(c.shallow) > 0 {
		var b bytes.Buffer
		for _, hash := range c.shallow {
			fmt.Fprintln(&b, hash)
		}
		files = append(files, [2]string{"shallow", b.String()})
	}
	staged, err := indexOf(c)
	if err != nil {
		return err
	}
	files = append(files, [2]string{"index", staged})
	for _, f := range files {
		if err := w.file(path.Join(dir, f[0]), f[1]); err != nil {
			return err
		}
	}
	for _, empty := range []string{"refs/heads", "refs/tags", "objects/info"} {
		h := &tar.Header{Typeflag: tar.TypeDir, Name: path.Join(dir, empty) + "/", Mode: 0o755, ModTime: w.at}
		if err := w.tar.WriteHeader(h); err != nil {
			return err
		}
	}
	return w.pack(c, dir)
}

// pack writes the pack and its index.
func (w *writer) pack(c *Checkout, dir string) error {
	name := filepath.Base(c.pack)
	if plumbing.IsHash(name) { // an export has the name of its commit
		name = "pack-" + name
	}
	for _, ending := range []string{".pack", ".idx"} {
		if err := w.copy(c.pack+ending, path.Join(dir, "objects/pack", name+ending)); err != nil {
			return err
		}
	}
	return nil
}

func (w *writer) copy(from, to string) error {
	f, err := os.Open(from)
	if err != nil {
		return cacheError(err)
	}
	defer func() { _ = f.Close() }() // only read
	info, err := f.Stat()
	if err != nil {
		return cacheError(err)
	}
	h := &tar.Header{Typeflag: tar.TypeReg, Name: to, Mode: 0o444, Size: info.Size(), ModTime: w.at}
	if err := w.tar.WriteHeader(h); err != nil {
		return err
	}
	_, err = io.CopyBuffer(w.tar, f, w.buffer)
	return err
}

func (w *writer) file(name, content string) error {
	h := &tar.Header{Typeflag: tar.TypeReg, Name: name, Mode: 0o644, Size: int64(len(content)), ModTime: w.at}
	if err := w.tar.WriteHeader(h); err != nil {
		return err
	}
	_, err := io.WriteString(w.tar, content)
	return err
}

// configOf is the configuration of a checkout. Its URLs were checked: they have neither quotes nor control characters.
func configOf(c *Checkout) string {
	var b bytes.Buffer
	b.WriteString("[core]\n\trepositoryformatversion = 0\n\tfilemode = true\n\tbare = false\n" +
		"\tlogallrefupdates = true\n")
	if !(sandbox.GitSource{URL: c.url}).IsLocal() { // nothing in the sandbox is at that path
		fmt.Fprintf(&b, "[remote \"origin\"]\n\turl = \"%s\"\n\tfetch = +refs/heads/*:refs/remotes/origin/*\n", c.url)
	}
	for _, sub := range c.subs {
		fmt.Fprintf(&b, "[submodule \"%s\"]\n\tactive = true\n\turl = \"%s\"\n", sub.name, sub.url)
	}
	return b.String()
}

// indexOf is Git's index of a checkout. Git compares the files with it at the next status. It skips links that are not
// written.
func indexOf(c *Checkout) (string, error) {
	all := &index.Index{Version: 3}
	for _, e := range c.entries {
		mode := e.mode
		if mode == filemode.Deprecated {
			mode = filemode.Regular
		}
		all.Entries = append(all.Entries,
			&index.Entry{Name: e.path, Mode: mode, Hash: e.hash, Size: uint32(e.size), SkipWorktree: e.leaves})
	}
	var b bytes.Buffer
	if err := index.NewEncoder(&b).Encode(all); err != nil {
		return "", sandbox.Errorf(sandbox.Failed, "its index cannot be written: %w", err)
	}
	return b.String(), nil
}
