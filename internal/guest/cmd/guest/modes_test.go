//go:build linux

package main

import (
	"io/fs"
	"os"
	"path/filepath"
	"testing"
)

func TestModesAreRestoredWhereTheDirectoryIsOurs(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	link := filepath.Join(dir, "link")
	ours := filepath.Join(dir, "ours")
	for _, err := range []error{os.Mkdir(ours, 0o700), os.Symlink(ours, link)} {
		if err != nil {
			t.Fatal(err)
		}
	}
	want := fs.ModeSticky | 0o777
	if err := restoreModes(map[string]fs.FileMode{ours: want, link: 0o700, filepath.Join(dir, "absent"): 0o700}); err != nil {
		t.Fatal(err)
	}
	info, err := os.Stat(ours)
	if err != nil {
		t.Fatal(err)
	}
	if got := info.Mode() &^ fs.ModeDir; got != want {
		t.Errorf("the mode is %s, want %s", got, want)
	}
}
