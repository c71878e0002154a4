package image

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"hash"
	"io"
	"io/fs"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"github.com/moby/buildkit/session/filesync"
	"github.com/tonistiigi/fsutil"
	fstypes "github.com/tonistiigi/fsutil/types"

	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// Directories that BuildKit's Dockerfile frontend requests from a session.
const (
	contextDir    = "context"
	dockerfileDir = "dockerfile"
)

// buildContext is a listed context. BuildKit requests the files that it does not have. Each sent file is
// compared with the listing: a file that changed since fails the build.
type buildContext struct {
	// key tells BuildKit which of its cached contexts to compare with.
	key  string
	dirs filesync.StaticDirSource

	spec Spec
	// stop ends the build: BuildKit waits forever for a file that was not sent completely.
	stop func(cause error)
	mu   sync.Mutex
	err  error
}

// buildContext prepares a listed context for BuildKit. It calls stop if a file differs from the listing.
func (s Spec) buildContext(listed listing, stop func(cause error)) *buildContext {
	o := &buildContext{key: contextKey(s.Context), spec: s, stop: stop}
	all, dockerfile := &folder{source: o}, &folder{source: o}
	for i, e := range listed.entries {
		all.add(e, listed.sums[i])
		if e.header.Name == s.dockerfile() {
			dockerfile.add(e, listed.sums[i])
		}
	}
	all.finish()
	dockerfile.finish()
	o.dirs = filesync.StaticDirSource{contextDir: all, dockerfileDir: dockerfile}
	return o
}

// contextKey is equal for builds of the same directory.
func contextKey(dir string) string {
	if abs, err := filepath.Abs(dir); err == nil { // otherwise the name unchanged: the key is only a hint
		dir = abs
	}
	sum := sha256.Sum256([]byte("sandbox-context:" + dir))
	return hex.EncodeToString(sum[:])
}

// broken returns why a file differs from the listing, nil if none does.
func (o *buildContext) broken() error {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.err
}

func (o *buildContext) fail(err error) error {
	o.mu.Lock()
	o.err = cmp.Or(o.err, err)
	o.mu.Unlock()
	o.stop(err)
	return err
}

// folder is a directory of a buildContext. It implements fsutil.FS.
type folder struct {
	source *buildContext
	files  []contextFile // in walk order, as fsutil requires
	byPath map[string]contextFile
}

// contextFile is a file, directory or link of a folder.
type contextFile struct {
	entry entry
	sum   []byte
	stat  *fstypes.Stat
}

func (f *folder) add(e entry, sum []byte) {
	stat := &fstypes.Stat{
		Path:     strings.TrimSuffix(e.header.Name, "/"),
		Mode:     uint32(e.header.FileInfo().Mode()),
		Linkname: e.header.Linkname,
	}
	if stat.Linkname == "" && !e.header.FileInfo().IsDir() {
		stat.Size, stat.ModTime = e.header.Size, contextFileTime(sum)
	}
	f.files = append(f.files, contextFile{e, sum, stat})
}

// contextFileTime is the modification time to report for a file: within the first second of 1970, at a
// nanosecond derived from its content. BuildKit requests a file again if its time or size differs from the
// cached copy. Different files can have equal times on disk.
func contextFileTime(sum []byte) int64 { return int64(binary.BigEndian.Uint64(sum) % 1e9) } //nolint:gosec // below 1e9

// finish sorts the entries and adds missing parent directories: BuildKit only creates directories in the
// listing.
func (f *folder) finish() {
	f.byPath = make(map[string]contextFile, len(f.files))
	for _, o := range f.files {
		f.byPath[o.stat.Path] = o
	}
	for _, o := range slices.Clone(f.files) {
		for dir := path.Dir(o.stat.Path); dir != "."; dir = path.Dir(dir) {
			if _, known := f.byPath[dir]; known {
				break
			}
			made := contextFile{stat: &fstypes.Stat{Path: dir, Mode: uint32(fs.ModeDir | 0o755)}}
			f.byPath[dir], f.files = made, append(f.files, made)
		}
	}
	inOrder := func(p string) string { return strings.ReplaceAll(p, "/", "\x00") }
	slices.SortFunc(f.files,
		func(a, b contextFile) int { return strings.Compare(inOrder(a.stat.Path), inOrder(b.stat.Path)) })
}

// Walk visits every file below target, as filepath.WalkDir does.
func (f *folder) Walk(ctx context.Context, target string, visit fs.WalkDirFunc) error {
	within := strings.Trim(filepath.ToSlash(target), "/")
	skip := ""
	for _, o := range f.files {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		p := o.stat.Path
		if within != "" && p != within && !strings.HasPrefix(p, within+"/") || skip != "" && strings.HasPrefix(p, skip) {
			continue
		}
		err := visit(filepath.FromSlash(p), &fsutil.DirEntryInfo{Stat: o.stat}, nil)
		switch {
		case errors.Is(err, fs.SkipAll):
			return nil
		case errors.Is(err, fs.SkipDir) && o.stat.IsDir():
			skip = p + "/"
		case errors.Is(err, fs.SkipDir):
			if skip = path.Dir(p) + "/"; skip == "./" {
				return nil
			}
		case err != nil:
			return err
		}
	}
	return nil
}

// Open opens a file. If that fails, it returns a file whose reads fail, because fsutil would send an empty file for an
// error of Open.
func (f *folder) Open(name string) (io.ReadCloser, error) {
	content, err := f.open(name)
	if err != nil {
		return unreadable{f.source.fail(err)}, nil
	}
	return content, nil
}

func (f *folder) open(name string) (io.ReadCloser, error) {
	name = strings.Trim(filepath.ToSlash(name), "/")
	o, known := f.byPath[name]
	if !known {
		return nil, sandbox.Errorf(sandbox.Internal, "build image from %s: BuildKit requested %q, which is not in the "+
			"listing",
			f.source.spec.Context, name)
	}
	content, err := o.entry.open()
	if err != nil { // it existed when it was listed
		return nil, sandbox.Errorf(sandbox.Conflict,
			"build context %s changed during the upload: %w. Nothing was built; plan again", f.source.spec.Context, err)
	}
	return &checked{ReadCloser: content, of: o, hash: o.entry.newHash(), source: f.source}, nil
}

// checked is the content of a file. It must match the listing.
type checked struct {
	io.ReadCloser

	of     contextFile
	hash   hash.Hash
	source *buildContext
}

func (c *checked) Read(p []byte) (int, error) {
	n, err := c.ReadCloser.Read(p)
	c.hash.Write(p[:n])
	switch {
	case errors.Is(err, io.EOF) && !bytes.Equal(c.hash.Sum(nil), c.of.sum):
		return n, c.source.fail(sandbox.Errorf(sandbox.Conflict,
			"build context %s changed during the upload: %s has changed. Nothing was built; plan again",
			c.source.spec.Context, c.of.stat.Path))
	case err != nil && !errors.Is(err, io.EOF):
		return n, c.source.fail(sandbox.Errorf(sandbox.Invalid, "read build context %s: %w", c.source.spec.Context, err))
	}
	return n, err
}

// unreadable is a file that could not be opened.
type unreadable struct{ cause error }

func (u unreadable) Read([]byte) (int, error) { return 0, u.cause }

func (u unreadable) Close() error { return nil }
