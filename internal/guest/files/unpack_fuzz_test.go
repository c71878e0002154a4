//go:build linux

package files

import (
	"archive/tar"
	"bytes"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// FuzzUnpack checks that an archive changes nothing outside of the directory, and that no link in it leads there.
func FuzzUnpack(f *testing.F) {
	example := rapid.Custom(hostile)
	for seed := range 20 {
		f.Add(example.Example(seed))
	}
	f.Add(linkThenThrough(f))
	f.Fuzz(func(t *testing.T, stream []byte) {
		if !small(stream) {
			return
		}
		outside := t.TempDir()
		dir := filepath.Join(outside, "workspace")
		victim := filepath.Join(outside, "victim")
		for _, err := range []error{os.Mkdir(dir, 0o700), os.WriteFile(victim, []byte("safe"), 0o600)} {
			if err != nil {
				t.Fatal(err)
			}
		}
		root, err := os.OpenRoot(dir)
		if err != nil {
			t.Fatal(err)
		}
		_ = Worker{}.unpackInto(t.Context(), root, bytes.NewReader(stream)) // it may refuse; only the result counts
		if err := root.Close(); err != nil {
			t.Fatal(err)
		}
		wantNothingOutside(t, outside, victim, dir)
	})
}

// small reports whether an archive's files are small. A hole may have any size, which only the limit of a sandbox
// bounds.
func small(stream []byte) bool {
	for entries := tar.NewReader(bytes.NewReader(stream)); ; {
		h, err := entries.Next()
		if err != nil {
			return true // unpacking ends there too
		}
		if h.Size > 1<<20 {
			return false
		}
	}
}

func wantNothingOutside(t *testing.T, outside, victim, dir string) {
	t.Helper()
	if b, err := os.ReadFile(victim); err != nil || string(b) != "safe" {
		t.Errorf("the file beside the directory holds %q: %v", b, err)
	}
	if entries, err := os.ReadDir(outside); err != nil || len(entries) != 2 {
		t.Errorf("beside the directory there are %v: %v", entries, err)
	}
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			// The archive may have made a directory unreadable: the test must be able to remove it.
			return os.Chmod(path, 0o700)
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		switch {
		case info.Mode()&fs.ModeSymlink != 0:
			target, err := os.Readlink(path)
			if err != nil {
				return err
			}
			to := filepath.Join(filepath.Dir(path), target)
			if filepath.IsAbs(target) || to != dir && !strings.HasPrefix(to, dir+"/") {
				t.Errorf("%s leads to %s", path, target)
			}
		case info.IsDir():
			return os.Chmod(path, 0o700)
		case !info.Mode().IsRegular() || info.Mode()&(fs.ModeSetuid|fs.ModeSetgid|fs.ModeSticky) != 0:
			t.Errorf("%s is %s", path, info.Mode())
		}
		return nil
	})
	if err != nil {
		t.Error(err)
	}
}

// linkThenThrough returns an archive that creates a link and then writes through it.
func linkThenThrough(t testing.TB) []byte {
	t.Helper()
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for _, h := range []*tar.Header{
		{Typeflag: tar.TypeDir, Name: "d/", Mode: 0o755},
		{Typeflag: tar.TypeSymlink, Name: "d/up", Linkname: ".."},
		{Typeflag: tar.TypeSymlink, Name: "e", Linkname: "d/up/../victim"},
		{Typeflag: tar.TypeLink, Name: "f", Linkname: "e"},
		{Typeflag: tar.TypeReg, Name: "d/up/e", Mode: 0o644},
		{Typeflag: tar.TypeReg, Name: "d/up/../victim", Mode: 0o644},
	} {
		if err := w.WriteHeader(h); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}
