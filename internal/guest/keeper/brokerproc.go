//go:build linux

package keeper

import (
	"errors"
	"os"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/guest"
)

// endFile is next to the channel's socket.
const endFile = guest.EndFile

// LinkDescriptor is the broker's descriptor of its link to the keeper. With a port, PortDescriptor and
// KeyDescriptor are those of the listener and the key.
const (
	LinkDescriptor = 3 + iota
	PortDescriptor
	KeyDescriptor
)

// startBroker starts this program again as a broker, which may only change its file-system identity. With a
// port it also reads all files of the sandbox, to save them.
func startBroker(link, null *os.File, door *door, args []string) (pid int, err error) {
	self, err := os.Executable()
	if err != nil {
		return 0, err
	}
	attr := &syscall.ProcAttr{
		Env:   os.Environ(),
		Files: []uintptr{null.Fd(), null.Fd(), uintptr(syscall.Stderr), link.Fd()},
		Sys:   &syscall.SysProcAttr{AmbientCaps: []uintptr{unix.CAP_SETUID, unix.CAP_SETGID}, Setsid: true},
	}
	if door == nil {
		return syscall.ForkExec(self, args, attr)
	}
	key, err := door.handKey()
	if err != nil {
		return 0, err
	}
	attr.Files = append(attr.Files, door.listener.Fd(), key.Fd())
	attr.Sys.AmbientCaps = append(attr.Sys.AmbientCaps, unix.CAP_DAC_OVERRIDE)
	pid, err = syscall.ForkExec(self, args, attr)
	return pid, errors.Join(err, key.Close())
}

// attached reports whether the broker still reads a command's output.
func (k *keeper) attached() bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	return len(k.readers) > 0
}
