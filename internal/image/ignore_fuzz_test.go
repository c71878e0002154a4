package image

import (
	"archive/tar"
	"bytes"
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/moby/patternmatcher"
)

// ignorable are the files of the context that rules are tried on.
var ignorable = []string{
	"Dockerfile", "a", "b.log", "d/a", "d/b.log", "d/e/a", "d/e/f/a", "x/y/z", "node_modules/p/q", "!odd",
}

// FuzzIgnoreRules compares the walk, which skips directories that it need not enter, with one that enters all, as the
// engine's own client would.
func FuzzIgnoreRules(f *testing.F) {
	for _, rules := range []string{
		"", "*.log\n", "d\n!d/e/f/a\n", "**\n!d\nd/e\n", "*/a\n", "d/**\n!**/a\n", "# c\n\n  d/  \n", "/d/../x\n",
		"!odd\n\\!odd\n", "[a-b]\n", "d/[e\n", "x/*/z\n!x/y\n", "\xef\xbb\xbfa\n", "*\n!*\n", "Dockerfile\n.dockerignore\n",
	} {
		f.Add(rules)
	}
	dir := f.TempDir()
	for _, name := range ignorable {
		path := filepath.Join(dir, name)
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755),
			os.WriteFile(path, []byte("FROM scratch\n"), 0o600)); err != nil {
			f.Fatal(err)
		}
	}
	spec := Spec{Context: dir}
	f.Fuzz(func(t *testing.T, rules string) {
		if err := os.WriteFile(filepath.Join(dir, ".dockerignore"), []byte(rules), 0o600); err != nil {
			t.Fatal(err)
		}
		var out bytes.Buffer
		if _, err := spec.writeTar(&out); err != nil {
			return
		}
		want, err := wanted(spec)
		if err != nil {
			t.Fatalf("the matcher rejects rules that the walk accepted: %v", err)
		}
		if got := filesIn(t, &out); !slices.Equal(got, want) {
			t.Errorf("%q leaves %q, want %q", rules, got, want)
		}
	})
}

// wanted asks the matcher about every file and every directory above it.
func wanted(spec Spec) ([]string, error) {
	matcher, err := spec.ignored()
	if err != nil {
		return nil, err
	}
	list := []string{".dockerignore"}
	for _, name := range ignorable {
		var (
			ignored bool
			match   patternmatcher.MatchInfo
		)
		for i := range len(name) + 1 { // the directories above it, and itself
			if i < len(name) && name[i] != '/' {
				continue
			}
			if ignored, match, err = matcher.MatchesUsingParentResults(name[:i], match); err != nil {
				return nil, err
			}
		}
		if !ignored || name == "Dockerfile" {
			list = append(list, name)
		}
	}
	slices.Sort(list)
	return list, nil
}

func filesIn(t *testing.T, archive io.Reader) (names []string) {
	t.Helper()
	for entries := tar.NewReader(archive); ; {
		h, err := entries.Next()
		if errors.Is(err, io.EOF) {
			slices.Sort(names)
			return names
		}
		if err != nil {
			t.Fatal(err)
		}
		if !strings.HasSuffix(h.Name, "/") {
			names = append(names, h.Name)
		}
	}
}
