//go:build linux

package main

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"
)

// mib is what a written file of the tests takes, beside a few blocks for its directory.
const mib = 1 << 20

func diskOf(t *testing.T, roots ...string) int64 {
	t.Helper()
	used, err := measureDisk(roots, mountsBelow(roots))
	if err != nil {
		t.Fatal(err)
	}
	return used
}

func writeMiB(t *testing.T, path string) {
	t.Helper()
	if err := os.WriteFile(path, bytes.Repeat([]byte("x"), mib), 0o600); err != nil {
		t.Fatal(err)
	}
}

func TestWhatADirectoryTakesOnDisk(t *testing.T) {
	t.Parallel()
	for name, row := range map[string]struct {
		make func(dir string) error
		want int64 // in MiB
	}{
		"nothing": {func(string) error { return nil }, 0},
		"a file with many names": {func(dir string) (err error) {
			for i := 0; i < 50 && err == nil; i++ {
				err = os.Link(filepath.Join(dir, "file"), filepath.Join(dir, fmt.Sprint("name", i)))
			}
			return err
		}, 0},
		"a hole": {func(dir string) error {
			if err := os.WriteFile(filepath.Join(dir, "hole"), nil, 0o600); err != nil {
				return err
			}
			return os.Truncate(filepath.Join(dir, "hole"), 1<<30)
		}, 0},
		"a link to a file elsewhere": {func(dir string) error { return os.Symlink("/proc/self/exe", filepath.Join(dir, "link")) }, 0},
		"space that is only reserved": {func(dir string) error {
			f, err := os.Create(filepath.Join(dir, "reserved"))
			if err != nil {
				return err
			}
			defer f.Close()
			return unix.Fallocate(int(f.Fd()), 0, 0, 3*mib)
		}, 3},
		"a directory that keeps its user out": {func(dir string) error {
			closed := filepath.Join(dir, "closed")
			if err := os.Mkdir(closed, 0o700); err != nil {
				return err
			}
			writeMiB(t, filepath.Join(closed, "file"))
			return os.Chmod(closed, 0)
		}, 1},
	} {
		dir := t.TempDir()
		writeMiB(t, filepath.Join(dir, "file"))
		before := diskOf(t, dir)
		if err := row.make(dir); err != nil {
			t.Fatal(err)
		}
		grown := diskOf(t, dir) - before
		const directories = 64 << 10 // at most
		if grown < row.want*mib || grown > row.want*mib+directories {
			t.Errorf("%s: it has grown by %d bytes, want %d MiB", name, grown, row.want)
		}
	}
}

func TestAFileWithoutANameTakesDisk(t *testing.T) { // not parallel: other tests hold files too
	dir := t.TempDir()
	before := diskOf(t, dir)
	f, err := os.Create(filepath.Join(dir, "deleted"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if _, err := f.Write(bytes.Repeat([]byte("x"), 3*mib)); err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(f.Name()); err != nil {
		t.Fatal(err)
	}
	second, err := unix.Dup(int(f.Fd()))
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(second)
	if grown := diskOf(t, dir) - before; grown < 3*mib || grown >= 4*mib {
		t.Errorf("it has grown by %d bytes, want 3 MiB", grown)
	}
}

// TestNoTreeIsTooDeepToBeMeasured: no path leads to its end, and one descriptor for each level would be too many.
func TestNoTreeIsTooDeepToBeMeasured(t *testing.T) {
	t.Parallel()
	const levels = 3000
	dir := t.TempDir()
	at, err := unix.Open(dir, unix.O_RDONLY|unix.O_DIRECTORY, 0)
	for i := 0; i < levels && err == nil; i++ {
		if err = unix.Mkdirat(at, "d", 0o700); err == nil {
			next, openErr := unix.Openat(at, "d", unix.O_RDONLY|unix.O_DIRECTORY, 0)
			_ = unix.Close(at)
			at, err = next, openErr
		}
	}
	if err != nil {
		t.Fatal(err)
	}
	fd, err := unix.Openat(at, "file", unix.O_CREAT|unix.O_WRONLY, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	for _, err := range []error{unix.Fallocate(fd, 0, 0, 2*mib), unix.Close(fd), unix.Close(at)} {
		if err != nil {
			t.Fatal(err)
		}
	}
	wide := filepath.Join(dir, "wide") // more entries than fit one read, so that the walk goes on where it stood
	if err := os.Mkdir(wide, 0o700); err != nil {
		t.Fatal(err)
	}
	for i := range 400 {
		if err := os.Mkdir(filepath.Join(wide, fmt.Sprint("directory-", i)), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	writeMiB(t, filepath.Join(wide, "directory-399", "file"))
	if got := diskOf(t, dir); got < 3*mib {
		t.Errorf("it takes %d bytes, want 3 MiB and its directories", got)
	}
}
