package ledgertest

import (
	"os"
	"testing"

	"golang.org/x/sys/unix"
)

// MountDisk mounts a disk of a size, such as "48m", until the test ends, and returns its directory. unmountFlags are
// the flags of the unmount. It skips the test if no disk can be mounted.
func MountDisk(t *testing.T, size string, unmountFlags int) (dir string) {
	t.Helper()
	if os.Getuid() != 0 {
		t.Skip("only root may mount a disk that is full")
	}
	dir = t.TempDir()
	if err := unix.Mount("tmpfs", dir, "tmpfs", 0, "size="+size); err != nil {
		t.Skipf("no disk can be mounted here, as in a container without the right to: %v", err)
	}
	t.Cleanup(func() {
		if err := unix.Unmount(dir, unmountFlags); err != nil {
			t.Error(err)
		}
	})
	return dir
}

// FillDisk fills a disk completely with a file.
func FillDisk(t *testing.T, file string) {
	t.Helper()
	f, err := os.Create(file)
	if err != nil {
		t.Fatal(err)
	}
	page := make([]byte, 4096)
	for err == nil {
		_, err = f.Write(page)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
}
