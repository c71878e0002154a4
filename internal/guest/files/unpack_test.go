//go:build linux

package files

import (
	"archive/tar"
	"bytes"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// unpackOne unpacks an archive with one entry into a directory next to a file.
func unpackOne(t *testing.T, h tar.Header) (dir string, err error) {
	t.Helper()
	outside := t.TempDir()
	dir = filepath.Join(outside, "workspace")
	for _, err := range []error{
		os.MkdirAll(filepath.Join(dir, "inside"), 0o700), os.WriteFile(filepath.Join(outside, "victim"), nil, 0o600),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	var archive bytes.Buffer
	w := tar.NewWriter(&archive)
	if err := errors.Join(w.WriteHeader(&h), w.Close()); err != nil {
		t.Fatal(err)
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer root.Close()
	return dir, Worker{}.unpackInto(t.Context(), root, &archive)
}

func TestALinkOutOfTheDirectoryIsRefused(t *testing.T) {
	t.Parallel()
	for name, h := range map[string]tar.Header{
		"absolute":                     {Typeflag: tar.TypeSymlink, Name: "link", Linkname: "/etc/passwd"},
		"to the parent":                {Typeflag: tar.TypeSymlink, Name: "link", Linkname: ".."},
		"beside the directory":         {Typeflag: tar.TypeSymlink, Name: "link", Linkname: "../victim"},
		"in and out again":             {Typeflag: tar.TypeSymlink, Name: "link", Linkname: "inside/../../victim"},
		"from below":                   {Typeflag: tar.TypeSymlink, Name: "inside/link", Linkname: "../../victim"},
		"a hard link":                  {Typeflag: tar.TypeLink, Name: "link", Linkname: "../victim"},
		"a hard link to an absolute":   {Typeflag: tar.TypeLink, Name: "link", Linkname: "/etc/passwd"},
		"a hard link in and out again": {Typeflag: tar.TypeLink, Name: "link", Linkname: "inside/../../victim"},
	} {
		dir, err := unpackOne(t, h)
		if err == nil || !strings.Contains(err.Error(), "outside of the directory") {
			t.Errorf("%s: the link is not refused by name: %v", name, err)
		}
		if _, err := os.Lstat(filepath.Join(dir, h.Name)); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("%s: the link is there: %v", name, err)
		}
	}
}

func TestALinkWithinTheDirectoryIsMade(t *testing.T) {
	t.Parallel()
	for _, h := range []tar.Header{
		{Typeflag: tar.TypeSymlink, Name: "link", Linkname: "inside"},
		{Typeflag: tar.TypeSymlink, Name: "inside/link", Linkname: "../anything"},
	} {
		dir, err := unpackOne(t, h)
		if err != nil {
			t.Error(err)
		}
		if to, err := os.Readlink(filepath.Join(dir, h.Name)); err != nil || to != h.Linkname {
			t.Errorf("%s leads to %q: %v", h.Name, to, err)
		}
	}
}
