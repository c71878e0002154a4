//go:build linux

package verifier

import (
	"os"
	"path/filepath"
	"slices"
	"testing"

	"go.uber.org/goleak"
	"golang.org/x/sys/unix"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestVariablesOfWritablePlacesAreLeftOut(t *testing.T) {
	open := t.TempDir()
	for name, want := range map[string]bool{
		"A=":                            true,
		"A=text":                        true,
		"A=" + open:                     false,
		"A=--require=" + open + "/x.js": false,
		"A=x:" + open + "/not/there":    false,
		"A=./x":                         false,
		"PYTHONPATH=":                   true,
		"PYTHONPATH=/::/":               false,
		"PYTHONPATH=src":                false,
		"PYTHONPATH=/usr":               safe("/usr"),
		"PERL5LIB=lib":                  false,
		"RUBYOPT=-rhook":                false,
		"NODE_OPTIONS=--require hook":   false,
		"JAVA_OPTS=":                    true,
		"A=--require=x/y.js":            false,
		"NO_PROXY=localhost,::1":        true,
		"LD_AUDIT=x":                    false,
		"HOME=/nowhere":                 false,
		"BASH_ENV=x":                    false,
	} {
		kept := slices.Contains(Run{}.environ([]string{name}), name)
		if kept != want {
			t.Errorf("%s is kept: %t", name, kept)
		}
	}
	given := Run{Home: "/own", Given: []string{"A", "HOME"}}.environ([]string{
		"A=" + open, "HOME=" + open, "PATH=" + open + ":.",
	})
	if want := []string{"A=" + open, "HOME=" + open, "PATH=", "TMPDIR=/own"}; !slices.Equal(given, want) {
		t.Errorf("what is given becomes %q, want %q", given, want)
	}
}

// TestOnlyWhatLiesOnReadOnlyFileSystemsIsSafe uses a read-only mount below a writable directory, which can be moved
// away.
func TestOnlyWhatLiesOnReadOnlyFileSystemsIsSafe(t *testing.T) {
	dir := t.TempDir()
	at := filepath.Join(dir, "mount")
	if err := os.Mkdir(at, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := unix.Mount("tmpfs", at, "tmpfs", unix.MS_RDONLY, ""); err != nil {
		t.Skip("nothing can be mounted: ", err)
	}
	t.Cleanup(func() {
		if err := unix.Unmount(at, unix.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
	if safe(at) || safe(filepath.Join(at, "not", "there")) || safe(dir) {
		t.Error("a mount below a directory that can be written is taken for safe")
	}
}
