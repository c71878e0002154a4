package image

import (
	"archive/tar"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/moby/patternmatcher"
	"github.com/moby/patternmatcher/ignorefile"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/sandbox"
)

// Hash returns the context hash: it changes when the build would get other files, paths, modes,
// contents, Dockerfile, arguments, target, platform or labels, and not when only times or owners
// do. Errors: Invalid, when the context cannot be read or has no Dockerfile.
func (s Spec) Hash() (string, error) {
	h, err := s.newHash()
	if err != nil {
		return "", err
	}
	if err := s.writeTar(h); err != nil {
		return "", err
	}
	return sum(h), nil
}

// writeTar writes the context as the engine gets it. The trailer is left to finishTar.
func (s Spec) writeTar(w io.Writer) error {
	matcher, err := s.ignored()
	if err != nil {
		return err
	}
	root := filepath.Clean(s.Context)
	c := &contextWalk{root: root, out: tar.NewWriter(w), matcher: matcher,
		always: map[string]bool{".dockerignore": true, s.dockerfile(): true},
		parent: map[string]patternmatcher.MatchInfo{}}
	if err := filepath.WalkDir(root, c.visit); err != nil {
		return asInvalid(err, "read build context %s", s.Context)
	}
	return c.out.Flush()
}

// finishTar writes the two empty blocks that end an archive.
func finishTar(w io.Writer) error { return tar.NewWriter(w).Close() }

// ignored reads .dockerignore, after making sure that there is something to build.
func (s Spec) ignored() (*patternmatcher.PatternMatcher, error) {
	if !filepath.IsLocal(s.dockerfile()) {
		return nil, sandbox.Errorf(sandbox.Invalid, "Dockerfile %s lies outside of the build context %s; move it inside, or choose a larger context", s.dockerfile(), s.Context)
	}
	if info, err := os.Stat(s.Context); err != nil {
		return nil, asInvalid(err, "read build context %s", s.Context)
	} else if !info.IsDir() {
		return nil, sandbox.Errorf(sandbox.Invalid, "build context %s is not a directory", s.Context)
	}
	dockerfile := filepath.Join(s.Context, s.dockerfile())
	if info, err := os.Stat(dockerfile); err != nil {
		return nil, asInvalid(err, "read Dockerfile %s", dockerfile)
	} else if !info.Mode().IsRegular() {
		return nil, sandbox.Errorf(sandbox.Invalid, "Dockerfile %s is not a file", dockerfile)
	}
	patterns, err := readIgnoreFile(filepath.Join(s.Context, ".dockerignore"))
	if err != nil {
		return nil, err
	}
	matcher, err := patternmatcher.New(patterns)
	if err != nil {
		return nil, asInvalid(err, "read %s", filepath.Join(s.Context, ".dockerignore"))
	}
	return matcher, nil
}

func readIgnoreFile(path string) ([]string, error) {
	f, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	} else if err != nil {
		return nil, asInvalid(err, "read %s", path)
	}
	defer func() { _ = f.Close() }() // only read from
	patterns, err := ignorefile.ReadAll(f)
	if err != nil {
		return nil, asInvalid(err, "read %s", path)
	}
	return patterns, nil
}

// contextWalk visits a context in lexical order and writes what is not ignored.
type contextWalk struct {
	root    string
	out     *tar.Writer
	matcher *patternmatcher.PatternMatcher
	// always are the files that the engine needs even when they are ignored; it drops them itself
	// before COPY sees them.
	always map[string]bool
	// parent holds the match of each directory visited, which decides about what is in it.
	parent map[string]patternmatcher.MatchInfo
}

func (c *contextWalk) visit(path string, entry fs.DirEntry, err error) error {
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
	if entry.IsDir() {
		c.parent[rel] = match
	}
	name := filepath.ToSlash(rel)
	if ignored && !c.always[name] {
		if entry.IsDir() && !c.mayHoldWanted(name) {
			return filepath.SkipDir
		}
		return nil
	}
	return c.write(path, name, entry)
}

// mayHoldWanted reports whether something below an ignored directory can still be wanted: through
// a pattern that begins with '!', or because the Dockerfile lies there.
func (c *contextWalk) mayHoldWanted(dir string) bool {
	for file := range c.always {
		if strings.HasPrefix(file, dir+"/") {
			return true
		}
	}
	for _, p := range c.matcher.Patterns() {
		// A wildcard may stand for the directory, so only a plain pattern can be ruled out.
		pattern := filepath.ToSlash(p.String())
		if p.Exclusion() && (strings.ContainsAny(pattern, `*?[\`) || strings.HasPrefix(pattern+"/", dir+"/")) {
			return true
		}
	}
	return false
}

func (c *contextWalk) write(path, name string, entry fs.DirEntry) error {
	info, err := entry.Info()
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
		return sandbox.Errorf(sandbox.Invalid, "build context: %s is neither a file, a directory nor a symbolic link (%s); name it in .dockerignore", path, info.Mode().Type())
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
	if err := c.out.WriteHeader(header); err != nil {
		return err
	}
	if !info.Mode().IsRegular() {
		return nil
	}
	return c.copy(path)
}

func (c *contextWalk) copy(path string) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer func() { _ = f.Close() }() // only read from
	_, err = io.Copy(c.out, f)
	return err
}

// asInvalid gives an error without a code the code Invalid and says what was tried.
func asInvalid(err error, format string, args ...any) error {
	var coded *sandbox.Error
	if errors.As(err, &coded) {
		return coded
	}
	return sandbox.Errorf(sandbox.Invalid, format+": %w", append(args, err)...)
}
