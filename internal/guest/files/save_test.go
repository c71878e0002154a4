//go:build linux

package files

import (
	"archive/tar"
	"bytes"
	"context"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/guest/wire"
)

func TestLinksThatLeadOutAreNotKept(t *testing.T) {
	t.Parallel()
	for name, want := range map[[2]string]string{
		{"a", "b"}:            "b",
		{"d/a", "../b"}:       "../b",
		{"a", "/data/d/b"}:    "d/b",
		{"d/a", "/data/b"}:    "../b",
		{"a", "nowhere"}:      "nowhere",
		{"a", "../b"}:         "",
		{"a", "/etc/passwd"}:  "",
		{"d/a", "../../b"}:    "",
		{"a", "/database"}:    "",
		{"a", ""}:             "",
		{"a", "/data/../etc"}: "",
	} {
		if got := linkInside("/data", name[0], name[1]); got != want {
			t.Errorf("%s -> %s is kept as %q, want %q", name[0], name[1], got, want)
		}
	}
}

func TestWhatIsSavedComesBack(t *testing.T) {
	t.Parallel()
	from, to := t.TempDir(), t.TempDir()
	must(t, os.MkdirAll(filepath.Join(from, "d", "e"), 0o750))
	must(t, os.WriteFile(filepath.Join(from, "d", "large"), bytes.Repeat([]byte("x"), 2*readWhole), 0o640))
	must(t, os.Link(filepath.Join(from, "d", "large"), filepath.Join(from, "same")))
	must(t, os.Symlink("d/large", filepath.Join(from, "link")))
	must(t, os.Symlink("/etc/passwd", filepath.Join(from, "outside")))
	when := time.Unix(1_234_567_890, 0)
	must(t, os.Chtimes(filepath.Join(from, "d", "large"), when, when))
	must(t, os.Chtimes(filepath.Join(from, "d"), when, when))
	var archive bytes.Buffer
	must(t, within(t, from, func(r *os.Root) error { return packBelow(r, from, &archive) }))
	must(t, within(t, to, func(r *os.Root) error { return Worker{}.unpackInto(t.Context(), r, &archive) }))
	must(t, os.Remove(filepath.Join(from, "outside"))) // it leads out, so it is not saved
	for _, name := range []string{"d", "d/large"} {
		was, err := os.Lstat(filepath.Join(from, name))
		must(t, err)
		is, err := os.Lstat(filepath.Join(to, name))
		must(t, err)
		if is.Mode() != was.Mode() || !is.ModTime().Equal(was.ModTime()) {
			t.Errorf("%s came back as %s of %s, and was %s of %s", name, is.Mode(), is.ModTime(), was.Mode(), was.ModTime())
		}
	}
	if got, want := tree(t, to), tree(t, from); got != want {
		t.Errorf("came back: %s, want: %s", got, want)
	}
	one, err := os.Stat(filepath.Join(to, "same"))
	must(t, err)
	other, err := os.Stat(filepath.Join(to, "d", "large"))
	must(t, err)
	if !os.SameFile(one, other) {
		t.Error("two names of one file came back as two files")
	}
}

func packBelow(r *os.Root, dir string, out io.Writer) error {
	a := packer{tw: tar.NewWriter(out), prefix: ".", kept: &kept{dir: dir, links: map[inode]firstName{}}}
	return a.directory(context.Background(), r, ".")
}

func within(t *testing.T, dir string, act func(*os.Root) error) error {
	t.Helper()
	root, err := os.OpenRoot(dir)
	must(t, err)
	defer root.Close()
	return act(root)
}

// tree lists everything below a directory.
func tree(t *testing.T, dir string) string {
	t.Helper()
	all := ""
	must(t, filepath.WalkDir(dir, func(p string, _ os.DirEntry, err error) error {
		all += strings.TrimPrefix(p, dir) + " "
		return err
	}))
	return all
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func TestFingerprintChangesWithEveryChange(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	file := filepath.Join(dir, "workspace", "f")
	must(t, os.Mkdir(filepath.Dir(file), 0o700))
	fingerprint := func() string { return Worker{base: dir}.Fingerprint(t.Context(), "/workspace") }
	if got := fingerprint(); got != wire.DataEmpty {
		t.Errorf("an empty directory has fingerprint %q", got)
	}
	seen := map[string]string{wire.DataEmpty: "nothing"}
	for _, step := range []struct {
		what   string
		change func() error
	}{
		{"a file", func() error { return os.WriteFile(file, []byte("a"), 0o600) }},
		{"another content", func() error { return os.WriteFile(file, []byte("bc"), 0o600) }},
		{"another mode", func() error { return os.Chmod(file, 0o644) }},
		{"another name", func() error { return os.Rename(file, filepath.Join(filepath.Dir(file), "g")) }},
		{"a directory", func() error { return os.Mkdir(filepath.Join(filepath.Dir(file), "d"), 0o700) }},
		{"a file in it", func() error { return os.WriteFile(filepath.Join(filepath.Dir(file), "d", "f"), nil, 0o600) }},
	} {
		must(t, step.change())
		got := fingerprint()
		if was, ok := seen[got]; ok || got == "" {
			t.Errorf("after %s the fingerprint is %q, as after %s", step.what, got, was)
		}
		if again := fingerprint(); again != got {
			t.Errorf("after %s the fingerprint changes by itself", step.what)
		}
		seen[got] = step.what
	}
}
