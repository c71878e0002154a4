package snapshotstore

import (
	"archive/tar"
	"context"
	"crypto/sha256"
	"errors"
	"io"
	"path"
	"strings"
	"time"

	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// An archive holds only entries that a sandbox's guest (internal/guest) can unpack again: files, directories, symbolic
// and hard links. The parent of each entry is a directory, each name occurs once, and no name or link leads out of
// /data. An archive has no owners, no extended attributes and no special mode bits. All other entries of /data are
// skipped and counted. The stream comes from hostile code, so nothing in it is trusted.

// Bounds of one archive, besides its size.
const (
	// maxEntries bounds the memory for names to about 64 MB, and the files that a restore creates.
	maxEntries = 1_000_000
	// maxName and maxPath are the limits of Linux, in bytes.
	maxName = 255
	maxPath = 4095
	// maxDepth bounds the work for one name, which is resolved directory by directory.
	maxDepth = 128
)

// maxTime is the latest modification time that is kept: not all file systems support later ones.
var maxTime = time.Date(2100, 1, 1, 0, 0, 0, 0, time.UTC)

// dataDir is where the archived directory is mounted in a sandbox.
const dataDir = "/data"

// normalise copies a tar stream of /data to a tar stream that can be unpacked.
func normalise(ctx context.Context, out io.Writer, data io.Reader, limit int64) (Archive, error) {
	in := &source{ctx: ctx, r: data, limit: limit}
	sized := &sizeLimit{w: out, left: limit, limit: limit}
	n := normaliser{in: tar.NewReader(in), out: tar.NewWriter(sized), seen: make(map[nameSum]kind)}
	err := n.run(in)
	if err == nil {
		err = n.out.Close()
	}
	if err == nil {
		_, err = io.Copy(io.Discard, in) // padding
	}
	switch {
	case err == nil:
		n.archive.Size = limit - sized.left
		return n.archive, nil
	case in.err != nil:
		return Archive{}, in.err
	case sandbox.CodeOf(err) != sandbox.Internal:
		return Archive{}, err
	default:
		return Archive{}, broken("%w", err)
	}
}

func broken(format string, args ...any) error {
	return sandbox.Errorf(sandbox.Invalid, "what was read is not a complete tar stream: "+format, args...).
		WithReason(sandbox.ReasonCopyFailed)
}

func tooLarge(limit int64) error {
	return sandbox.Errorf(sandbox.Invalid, "%s has more than the %d bytes that may be kept (files count with their "+
		"holes, and each entry takes 512 bytes or more): delete some of it, or raise the limit",
		dataDir, limit).WithReason(sandbox.ReasonResourceLimitExceeded)
}

type kind byte

const (
	isDirectory kind = iota + 1
	isOther
)

// nameSum stands for a name, so that the memory for one does not depend on its length.
type nameSum [16]byte

func sumOf(name string) nameSum {
	full := sha256.Sum256([]byte(name))
	return nameSum(full[:16])
}

type normaliser struct {
	in      *tar.Reader
	out     *tar.Writer
	seen    map[nameSum]kind
	archive Archive
}

func (n *normaliser) run(in *source) error {
	for entries := 0; ; entries++ {
		before := in.n
		h, err := n.in.Next()
		if errors.Is(err, io.EOF) {
			if in.n-before < 1024 { // the reader treats a missing end mark as the end
				return broken("its end is missing")
			}
			return nil
		}
		if err != nil {
			return err
		}
		if entries == maxEntries {
			return sandbox.Errorf(sandbox.Invalid, "%s has more than the %d entries that may be kept: delete some of them",
				dataDir, maxEntries).
				WithReason(sandbox.ReasonResourceLimitExceeded)
		}
		if err := n.entry(h); err != nil {
			return err
		}
		// Read the rest of the content here, so that Next reads only the end mark at the end.
		if _, err := io.Copy(io.Discard, n.in); err != nil {
			return err
		}
	}
}

// entry copies one entry, unless it cannot be restored.
func (n *normaliser) entry(h *tar.Header) error {
	name := path.Clean(h.Name)
	if name == "." && h.Typeflag == tar.TypeDir || h.Typeflag == tar.TypeXGlobalHeader {
		return nil // /data itself, and global defaults that the reader has applied
	}
	clean, ok := n.rewrite(h, name)
	if !ok || !n.place(name, clean.Typeflag) {
		n.archive.Skipped++
		return nil
	}
	if clean.Typeflag != tar.TypeDir {
		n.archive.Files++
	}
	if err := n.out.WriteHeader(clean); err != nil {
		return err
	}
	if clean.Size == 0 {
		return nil
	}
	_, err := io.Copy(n.out, n.in)
	return err
}

// rewrite returns the header that is kept for an entry, and false if the entry cannot be kept.
func (n *normaliser) rewrite(h *tar.Header, name string) (*tar.Header, bool) {
	if !fits(name) {
		return nil, false
	}
	clean := &tar.Header{Typeflag: h.Typeflag, Name: name, Mode: h.Mode & 0o777, ModTime: keptTime(h.ModTime)}
	if clean.ModTime.Nanosecond() != 0 {
		clean.Format = tar.FormatPAX // the only one with fractions of a second
	}
	switch h.Typeflag {
	case tar.TypeDir:
		clean.Name += "/"
		return clean, true
	case tar.TypeReg, tar.TypeGNUSparse:
		clean.Typeflag, clean.Size = tar.TypeReg, h.Size
		return clean, true
	case tar.TypeSymlink:
		clean.Linkname = inside(name, h.Linkname)
		return clean, clean.Linkname != ""
	case tar.TypeLink:
		clean.Linkname = path.Clean(h.Linkname)
		return clean, fits(clean.Linkname) && n.seen[sumOf(clean.Linkname)] == isOther
	default:
		return nil, false
	}
}

// keptTime returns a modification time that every file system supports.
func keptTime(t time.Time) time.Time {
	if t.Before(time.Unix(0, 0)) || t.After(maxTime) {
		return time.Unix(0, 0)
	}
	return t
}

// fits reports whether a clean path names something below /data.
func fits(name string) bool {
	if name == "." || name == ".." || path.IsAbs(name) || strings.HasPrefix(name, "../") || len(name) > maxPath {
		return false
	}
	depth := 0
	for part := range strings.SplitSeq(name, "/") {
		if depth++; len(part) > maxName || depth > maxDepth {
			return false
		}
	}
	return true
}

// inside returns the target of the symbolic link at name as a relative path, "" if it leads out of /data.
func inside(name, target string) string {
	if target == "" || len(target) > maxPath {
		return ""
	}
	if path.IsAbs(target) {
		rest, ok := strings.CutPrefix(path.Clean(target)+"/", dataDir+"/")
		if !ok {
			return ""
		}
		target = path.Clean(strings.Repeat("../", strings.Count(name, "/")) + rest)
	}
	to := path.Join(path.Dir(name), target)
	if to == ".." || strings.HasPrefix(to, "../") || len(target) > maxPath {
		return ""
	}
	return target
}

// place reserves a name for an entry. It returns false if the name is taken, or if a parent is not a directory.
func (n *normaliser) place(name string, typeflag byte) bool {
	k := isOther
	if typeflag == tar.TypeDir {
		k = isDirectory
	}
	sum := sumOf(name)
	if n.seen[sum] != 0 || !n.parents(path.Dir(name)) {
		return false
	}
	n.seen[sum] = k
	return true
}

// parents reports whether a directory exists or can exist. It records a directory whose name no entry has.
func (n *normaliser) parents(dir string) bool {
	if dir == "." {
		return true
	}
	sum := sumOf(dir)
	switch n.seen[sum] {
	case isDirectory:
		return true
	case isOther:
		return false
	}
	if !n.parents(path.Dir(dir)) {
		return false
	}
	n.seen[sum] = isDirectory
	return true
}

// source is the stream to archive. It keeps its own error, to tell it from errors of tar.
type source struct {
	ctx   context.Context
	r     io.Reader
	n     int64 // bytes read
	limit int64
	err   error
}

func (s *source) Read(p []byte) (int, error) {
	if s.err != nil {
		return 0, s.err
	}
	n, err := s.r.Read(p)
	s.n += int64(n)
	switch {
	case err != nil && !errors.Is(err, io.EOF):
		s.err = err
	case s.ctx.Err() != nil:
		s.err = s.ctx.Err()
	case s.n-tarPadding > s.limit:
		s.err = tooLarge(s.limit)
	default:
		return n, err
	}
	return n, s.err
}

// tarPadding is how much longer than its kept content a stream may be: writers pad their last record, usually of 10
// KiB.
const tarPadding = 10 << 10

// sizeLimit bounds the bytes written.
type sizeLimit struct {
	w           io.Writer
	left, limit int64
}

func (s *sizeLimit) Write(p []byte) (int, error) {
	if s.left -= int64(len(p)); s.left < 0 {
		return 0, tooLarge(s.limit)
	}
	return s.w.Write(p)
}
