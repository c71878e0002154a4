package image

import (
	"archive/tar"
	"crypto/sha256"
	"errors"
	"fmt"
	"hash"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/moby/patternmatcher"
	"github.com/moby/patternmatcher/ignorefile"
	"golang.org/x/sync/errgroup"

	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// ignoreFile lists the files that are not part of a build.
const ignoreFile = ".dockerignore"

// terraformFiles are patterns of what Terraform writes while it plans and applies. A context that has its files would
// be another one after every apply, and its image would hold the state, with all secrets in it. A rule of .dockerignore
// may bring them back.
var terraformFiles = []string{"**/.terraform", "**/*.tfstate", "**/*.tfstate.*"}

// inlineDockerfile is the name of an inline Dockerfile in the sent context. A rule in .dockerignore hides it
// from COPY.
const inlineDockerfile = ".dockerfile.inline"

// Hash returns the context hash. It changes if the build would get other files, paths, modes, contents,
// Dockerfile, arguments, target, platform or labels. It does not change with times or owners. It reads files
// on all processors in parallel. Errors: Invalid, if the context cannot be read or has no Dockerfile.
func (s Spec) Hash() (string, error) {
	listed, err := s.list()
	return listed.hash, err
}

// listing is a snapshot of the context: the files of a build.
type listing struct {
	entries []entry
	sums    [][]byte // one per entry
	hash    string
}

// list reads the context.
func (s Spec) list() (listing, error) {
	entries, err := s.entries()
	if err != nil {
		return listing{}, err
	}
	sums := make([][]byte, len(entries))
	var next atomic.Int64
	var workers errgroup.Group
	for range min(runtime.GOMAXPROCS(0), len(entries)) {
		workers.Go(func() error {
			buffer := make([]byte, 1<<16)
			for i := next.Add(1) - 1; i < int64(len(entries)); i = next.Add(1) - 1 {
				h := entries[i].newHash()
				if err := entries[i].copyTo(h, buffer); err != nil {
					return err
				}
				sums[i] = h.Sum(nil)
			}
			return nil
		})
	}
	if err := workers.Wait(); err != nil {
		return listing{}, asInvalid(err, "read build context %s", s.Context)
	}
	h, err := s.newHash()
	if err != nil {
		return listing{}, err
	}
	for _, sum := range sums {
		h.Write(sum)
	}
	return listing{entries, sums, sum(h)}, nil
}

// writeTar writes the context as the engine receives it, and returns its hash. finishTar writes the trailer.
func (s Spec) writeTar(w io.Writer) (hash string, err error) {
	entries, err := s.entries()
	if err != nil {
		return "", err
	}
	all, err := s.newHash()
	if err != nil {
		return "", err
	}
	out, buffer := tar.NewWriter(w), make([]byte, 1<<16)
	for _, e := range entries {
		h := e.newHash()
		err := out.WriteHeader(e.header)
		if err == nil {
			err = e.copyTo(io.MultiWriter(h, out), buffer)
		}
		if err != nil {
			return "", asInvalid(err, "read build context %s", s.Context)
		}
		all.Write(h.Sum(nil))
	}
	return sum(all), out.Flush()
}

// entry is a file, directory or link of a context, as the engine receives it.
type entry struct {
	header *tar.Header
	// path is the file to read, "" if content holds the data.
	path    string
	content string
}

// newHash returns a hash over an entry without its content.
func (e entry) newHash() hash.Hash {
	h := sha256.New()
	fmt.Fprintf(h, "%q %o %c %q %d\n", e.header.Name, e.header.Mode, e.header.Typeflag, e.header.Linkname, e.header.Size)
	return h
}

// copyTo writes the content of a file; other entries have none.
func (e entry) copyTo(w io.Writer, buffer []byte) error {
	if e.header.Typeflag != tar.TypeReg {
		return nil
	}
	f, err := e.open()
	if err != nil {
		return err
	}
	defer func() { _ = f.Close() }() // read only
	_, err = io.CopyBuffer(w, struct{ io.Reader }{f}, buffer)
	return err
}

// open opens the content of a file.
func (e entry) open() (io.ReadCloser, error) {
	if e.path == "" {
		return io.NopCloser(strings.NewReader(e.content)), nil
	}
	return os.Open(e.path)
}

// entries lists the context in the order of the stream.
func (s Spec) entries() ([]entry, error) {
	matcher, err := s.ignored()
	if err != nil {
		return nil, err
	}
	root := filepath.Clean(s.Context)
	c := &contextWalk{root: root, matcher: matcher,
		always: map[string]bool{ignoreFile: true, s.dockerfile(): true},
		parent: map[string]patternmatcher.MatchInfo{}}
	if err := filepath.WalkDir(root, c.visit); err != nil {
		return nil, asInvalid(err, "read build context %s", s.Context)
	}
	if s.Inline == "" {
		return c.found, nil
	}
	return withInline(c.found, s)
}

// withInline adds the inline Dockerfile and a rule that hides it from COPY.
func withInline(found []entry, s Spec) ([]entry, error) {
	rules := ""
	if text, err := os.ReadFile(filepath.Join(s.Context, ignoreFile)); err == nil {
		rules = string(text) + "\n"
	} else if !errors.Is(err, fs.ErrNotExist) {
		return nil, asInvalid(err, "read build context %s", s.Context)
	}
	found = slices.DeleteFunc(found,
		func(e entry) bool { return e.header.Name == ignoreFile || e.header.Name == inlineDockerfile })
	rules += inlineDockerfile + "\n"
	if len(s.Files) > 0 {
		rules += "!" + s.FilesDir + "\n"
		found = slices.DeleteFunc(found, func(e entry) bool {
			return strings.HasPrefix(e.header.Name, s.FilesDir+"/")
		})
	}
	found = append(found, written(ignoreFile, 0o600, rules), written(inlineDockerfile, 0o600, s.Inline))
	for _, f := range s.Files {
		found = append(found, written(f.Name, f.Mode, string(f.Content)))
	}
	return found, nil
}

// written is an entry for a file that is not on disk.
func written(name string, mode fs.FileMode, content string) entry {
	return entry{content: content, header: &tar.Header{
		Name:     name,
		Typeflag: tar.TypeReg,
		Mode:     int64(mode.Perm()),
		Size:     int64(len(content)),
		ModTime:  time.Unix(0, 0),
		Format:   tar.FormatPAX,
	}}
}

// finishTar writes the two empty blocks that end an archive.
func finishTar(w io.Writer) error { return tar.NewWriter(w).Close() }

// ignored returns what is not part of the context: Terraform's files and those of .dockerignore. It first checks that
// the context exists.
func (s Spec) ignored() (*patternmatcher.PatternMatcher, error) {
	if info, err := os.Stat(s.Context); err != nil {
		return nil, asInvalid(err, "read build context %s", s.Context)
	} else if !info.IsDir() {
		return nil, sandbox.Errorf(sandbox.Invalid, "build context %s is not a directory", s.Context)
	}
	if err := s.checkDockerfile(); err != nil {
		return nil, err
	}
	patterns, err := readIgnoreFile(filepath.Join(s.Context, ignoreFile))
	if err != nil {
		return nil, err
	}
	matcher, err := patternmatcher.New(slices.Concat(terraformFiles, patterns))
	if err != nil {
		return nil, asInvalid(err, "read %s", filepath.Join(s.Context, ignoreFile))
	}
	return matcher, nil
}

// checkDockerfile checks that the Dockerfile is in the context, unless it is inline.
func (s Spec) checkDockerfile() error {
	if s.Inline != "" {
		return nil
	}
	if !filepath.IsLocal(s.dockerfile()) {
		return sandbox.Errorf(sandbox.Invalid,
			"Dockerfile %s is outside of the build context %s; move it inside, or choose a larger context",
			s.dockerfile(), s.Context)
	}
	dockerfile := filepath.Join(s.Context, s.dockerfile())
	if info, err := os.Stat(dockerfile); err != nil {
		return asInvalid(err, "read Dockerfile %s", dockerfile)
	} else if !info.Mode().IsRegular() {
		return sandbox.Errorf(sandbox.Invalid, "Dockerfile %s is not a file", dockerfile)
	}
	return nil
}

func readIgnoreFile(path string) ([]string, error) {
	f, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	} else if err != nil {
		return nil, asInvalid(err, "read %s", path)
	}
	defer func() { _ = f.Close() }() // read only
	patterns, err := ignorefile.ReadAll(f)
	if err != nil {
		return nil, asInvalid(err, "read %s", path)
	}
	return patterns, nil
}

// contextWalk visits a context in lexical order and collects what is not ignored.
type contextWalk struct {
	root    string
	found   []entry
	matcher *patternmatcher.PatternMatcher
	// always are files that the engine needs even if they are ignored. It drops them itself before COPY.
	always map[string]bool
	// parent holds the match of each visited directory. The match decides about the directory's content.
	parent map[string]patternmatcher.MatchInfo
}

func (c *contextWalk) visit(path string, file fs.DirEntry, err error) error {
	if err != nil {
		return err
	}
	if path == c.root {
		return nil
	}
	rel, err := filepath.Rel(c.root, path)
	if err != nil {
		return err
	}
	ignored, match, err := c.matcher.MatchesUsingParentResults(rel, c.parent[filepath.Dir(rel)])
	if err != nil {
		return err
	}
	if file.IsDir() {
		c.parent[rel] = match
	}
	name := filepath.ToSlash(rel)
	if ignored && !c.always[name] {
		if file.IsDir() && !c.mayHoldWanted(name) {
			return filepath.SkipDir
		}
		return nil
	}
	return c.add(path, name, file)
}

// mayHoldWanted reports whether an ignored directory can contain a wanted file: through a pattern that starts
// with '!', or because the Dockerfile is in it.
func (c *contextWalk) mayHoldWanted(dir string) bool {
	for file := range c.always {
		if strings.HasPrefix(file, dir+"/") {
			return true
		}
	}
	for _, p := range c.matcher.Patterns() {
		// A wildcard may match the directory, so only a plain pattern can be ruled out.
		pattern := filepath.ToSlash(p.String())
		if p.Exclusion() && (strings.ContainsAny(pattern, `*?[\`) || strings.HasPrefix(pattern+"/", dir+"/")) {
			return true
		}
	}
	return false
}

func (c *contextWalk) add(path, name string, file fs.DirEntry) error {
	info, err := file.Info()
	if err != nil {
		return err
	}
	var target string
	switch {
	case info.Mode()&fs.ModeSymlink != 0:
		if target, err = os.Readlink(path); err != nil {
			return err
		}
	case !info.Mode().IsRegular() && !info.IsDir():
		return sandbox.Errorf(sandbox.Invalid,
			"build context: %s is neither a file, a directory nor a symbolic link (%s); name it in .dockerignore",
			path, info.Mode().Type())
	}
	header, err := tar.FileInfoHeader(info, filepath.ToSlash(target))
	if err != nil {
		return err
	}
	header.Name = name
	if info.IsDir() {
		header.Name += "/"
	}
	header.ModTime, header.AccessTime, header.ChangeTime = time.Unix(0, 0), time.Time{}, time.Time{}
	header.Uid, header.Gid, header.Uname, header.Gname = 0, 0, "", ""
	header.Format = tar.FormatPAX
	c.found = append(c.found, entry{header: header, path: path})
	return nil
}

// asInvalid gives an error without a code the code Invalid, and says what failed.
func asInvalid(err error, format string, args ...any) error {
	var coded *sandbox.Error
	if errors.As(err, &coded) {
		return coded
	}
	return sandbox.Errorf(sandbox.Invalid, format+": %w", append(args, err)...)
}
