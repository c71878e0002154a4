//go:build linux

package disk

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// mib is the size of a test's file, without a few blocks for its directory.
const mib = 1 << 20

// diskOf measures only a tree: all processes of the machine, other tests too, hold files without a name.
func diskOf(t *testing.T, root string) int64 {
	t.Helper()
	w := walk{elsewhere: mountsBelow([]string{root}), buffer: make([]byte, 4096)}
	if _, err := w.tree(root); err != nil {
		t.Fatal(err)
	}
	return w.used
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
		"a link to a file elsewhere": {
			func(dir string) error { return os.Symlink("/proc/self/exe", filepath.Join(dir, "link")) }, 0,
		},
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

func TestAFileWithoutANameTakesDisk(t *testing.T) {
	t.Parallel()
	f, err := os.Create(filepath.Join(t.TempDir(), "deleted"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	second, err := unix.Dup(int(f.Fd())) // of the same file, which counts once
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(second)
	var s unix.Stat_t
	for _, err := range []error{
		unix.Fallocate(int(f.Fd()), 0, 0, 3*mib), os.Remove(f.Name()), unix.Fstat(int(f.Fd()), &s),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	w, held := walk{buffer: make([]byte, 4096)}, map[inode]int64{}
	w.heldBy(os.Getpid(), map[uint64]bool{inodeOf(&s).dev: true}, held)
	if got := held[inodeOf(&s)]; got < 3*mib || got >= 4*mib {
		t.Errorf("it takes %d bytes, want 3 MiB", got)
	}
	other := map[inode]int64{}
	if w.heldBy(os.Getpid(), map[uint64]bool{^inodeOf(&s).dev: true}, other); len(other) != 0 {
		t.Errorf("files on another device count: %v", other)
	}
}

// TestNoTreeIsTooDeepToBeMeasured uses a tree whose end no path reaches. One descriptor for each level would be too
// many.
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
	wide := filepath.Join(dir, "wide") // more entries than one read returns, so that the walk must continue
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

func TestNoProgramStartsWhileOthersAreEnded(t *testing.T) {
	t.Parallel()
	root := t.TempDir()
	writeMiB(t, filepath.Join(root, "file"))
	var shut, looked, opened bool
	w := watch{limits: Limits{
		Bytes: 1, Roots: []string{root},
		Holders: func() []int { return nil },
		Writers: func() []int { looked = true; return nil },
		Ended: func(time.Duration) {
			if !shut {
				t.Error("they are said to be ended while others may start")
			}
		},
		Shut: func() func() {
			shut = true
			return func() { opened = looked }
		},
	}}
	w.look()
	if !opened {
		t.Errorf("shut: %t, looked for programs: %t, opened after it: %t", shut, looked, opened)
	}
}
