package seal_test

import (
	"encoding/binary"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/seal"
)

// TestTheNameOfANewKeyIsMadeDurable: a directory can only be synced once it is open, so it must be opened after the key
// has its name.
func TestTheNameOfANewKeyIsMadeDurable(t *testing.T) {
	t.Parallel()
	file := keyFile(t)
	watch, err := syscall.InotifyInit1(syscall.IN_CLOEXEC | syscall.IN_NONBLOCK)
	if err != nil {
		t.Fatal(err)
	}
	events := os.NewFile(uintptr(watch), "inotify")
	defer events.Close()
	if _, err := syscall.InotifyAddWatch(watch, filepath.Dir(file), syscall.IN_CREATE|syscall.IN_OPEN); err != nil {
		t.Fatal(err)
	}
	if err := seal.Generate(file); err != nil {
		t.Fatal(err)
	}
	b := make([]byte, 64<<10)
	n, err := events.Read(b)
	if err != nil {
		t.Fatal(err)
	}
	named, opened := false, false
	for b = b[:n]; len(b) > 0; {
		mask, size := binary.NativeEndian.Uint32(b[4:]), binary.NativeEndian.Uint32(b[12:])
		name := strings.TrimRight(string(b[syscall.SizeofInotifyEvent:syscall.SizeofInotifyEvent+size]), "\x00")
		named = named || mask&syscall.IN_CREATE != 0 && name == filepath.Base(file)
		opened = opened || named && mask&syscall.IN_OPEN != 0 && mask&syscall.IN_ISDIR != 0
		b = b[syscall.SizeofInotifyEvent+size:]
	}
	if !opened {
		t.Errorf("the directory was not synced after the key got its name (named: %t)", named)
	}
}
