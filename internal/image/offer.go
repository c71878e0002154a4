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

// The directories that BuildKit's Dockerfile frontend asks a session for.
const (
	contextDir    = "context"
	dockerfileDir = "dockerfile"
)

// offer is a listed context of which BuildKit takes the files that it does not have. What it takes is held
// against the listing: a file that has changed since breaks the build.
type offer struct {
	// key tells BuildKit which of the contexts that it has kept is the one to compare with.
	key  string
	dirs filesync.StaticDirSource

	spec Spec
	// stop ends the build: BuildKit waits for ever for a file that could not be sent whole.
	stop func(cause error)
	mu   sync.Mutex
	err  error
}

// offer makes a listed context ready for BuildKit. stop is called when it turns out not to be what was listed.
func (s Spec) offer(listed listing, stop func(cause error)) *offer {
	o := &offer{key: contextKey(s.Context), spec: s, stop: stop}
	all, dockerfile := &folder{offer: o}, &folder{offer: o}
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

// contextKey is the same for builds of the same directory.
func contextKey(dir string) string {
	if abs, err := filepath.Abs(dir); err == nil { // else the name as it is: the key is only a hint
		dir = abs
	}
	sum := sha256.Sum256([]byte("sandbox-context:" + dir))
	return hex.EncodeToString(sum[:])
}

// broken returns why a file was not what was listed, nil if all were.
func (o *offer) broken() error {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.err
}

func (o *offer) fail(err error) error {
	o.mu.Lock()
	o.err = cmp.Or(o.err, err)
	o.mu.Unlock()
	o.stop(err)
	return err
}

// folder is a directory of an offer; it is an fsutil.FS.
type folder struct {
	offer  *offer
	files  []offered // in the order that fsutil wants: as a walk finds them
	byPath map[string]offered
}

// offered is a file, directory or link of a folder.
type offered struct {
	entry entry
	sum   []byte
	stat  *fstypes.Stat
}

func (f *folder) add(e entry, sum []byte) {
	stat := &fstypes.Stat{Path: strings.TrimSuffix(e.header.Name, "/"), Mode: uint32(e.header.FileInfo().Mode()), Linkname: e.header.Linkname}
	if stat.Linkname == "" && !e.header.FileInfo().IsDir() {
		stat.Size, stat.ModTime = e.header.Size, offeredTime(sum)
	}
	f.files = append(f.files, offered{e, sum, stat})
}

// offeredTime is the time at which a file is said to have changed: within the first second of 1970, at a nanosecond
// that follows from its content. BuildKit asks for a file again when its time or size differ from those of the copy that it
// has, and times of the disk can be equal for files that are not.
func offeredTime(sum []byte) int64 { return int64(binary.BigEndian.Uint64(sum) % 1e9) } //nolint:gosec // below 1e9

// finish puts what was added in order, and adds the directories of which only the content was: BuildKit makes no directory
// that it was not told of.
func (f *folder) finish() {
	f.byPath = make(map[string]offered, len(f.files))
	for _, o := range f.files {
		f.byPath[o.stat.Path] = o
	}
	for _, o := range slices.Clone(f.files) {
		for dir := path.Dir(o.stat.Path); dir != "."; dir = path.Dir(dir) {
			if _, known := f.byPath[dir]; known {
				break
			}
			made := offered{stat: &fstypes.Stat{Path: dir, Mode: uint32(fs.ModeDir | 0o755)}}
			f.byPath[dir], f.files = made, append(f.files, made)
		}
	}
	inOrder := func(p string) string { return strings.ReplaceAll(p, "/", "\x00") }
	slices.SortFunc(f.files, func(a, b offered) int { return strings.Compare(inOrder(a.stat.Path), inOrder(b.stat.Path)) })
}

// Walk tells of every file below target, as filepath.WalkDir does.
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

// Open opens a file. What cannot be opened is a file that cannot be read: for one that is not opened, fsutil sends
// an empty one.
func (f *folder) Open(name string) (io.ReadCloser, error) {
	content, err := f.open(name)
	if err != nil {
		return unreadable{f.offer.fail(err)}, nil
	}
	return content, nil
}

func (f *folder) open(name string) (io.ReadCloser, error) {
	name = strings.Trim(filepath.ToSlash(name), "/")
	o, known := f.byPath[name]
	if !known {
		return nil, sandbox.Errorf(sandbox.Internal, "build image from %s: BuildKit asks for %q, which it was not told of", f.offer.spec.Context, name)
	}
	content, err := o.entry.open()
	if err != nil { // it was there when it was listed
		return nil, sandbox.Errorf(sandbox.Conflict, "build context %s changed while it was sent: %w. Nothing was built; plan again", f.offer.spec.Context, err)
	}
	return &checked{ReadCloser: content, of: o, hash: o.entry.newHash(), offer: f.offer}, nil
}

// checked is the content of a file that must be what was listed.
type checked struct {
	io.ReadCloser

	of    offered
	hash  hash.Hash
	offer *offer
}

func (c *checked) Read(p []byte) (int, error) {
	n, err := c.ReadCloser.Read(p)
	c.hash.Write(p[:n])
	switch {
	case errors.Is(err, io.EOF) && !bytes.Equal(c.hash.Sum(nil), c.of.sum):
		return n, c.offer.fail(sandbox.Errorf(sandbox.Conflict, "build context %s changed while it was sent: %s is not what it was. Nothing was built; plan again", c.offer.spec.Context, c.of.stat.Path))
	case err != nil && !errors.Is(err, io.EOF):
		return n, c.offer.fail(sandbox.Errorf(sandbox.Invalid, "read build context %s: %w", c.offer.spec.Context, err))
	}
	return n, err
}

// unreadable is a file that could not be opened.
type unreadable struct{ cause error }

func (u unreadable) Read([]byte) (int, error) { return 0, u.cause }

func (u unreadable) Close() error { return nil }
