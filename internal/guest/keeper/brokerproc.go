//go:build linux

package keeper

import (
	"os"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/guest"
)

// endFile is beside the channel's socket.
const endFile = guest.EndFile

// LinkDescriptor is where the broker finds its link to the keeper.
const LinkDescriptor = 3

// startBroker starts this program again, as a broker: it may change its file-system identity, and no more.
func startBroker(link, null *os.File, args []string) (pid int, err error) {
	self, err := os.Executable()
	if err != nil {
		return 0, err
	}
	return syscall.ForkExec(self, args, &syscall.ProcAttr{
		Env:   os.Environ(),
		Files: []uintptr{null.Fd(), null.Fd(), uintptr(syscall.Stderr), link.Fd()},
		Sys:   &syscall.SysProcAttr{AmbientCaps: []uintptr{unix.CAP_SETUID, unix.CAP_SETGID}, Setsid: true},
	})
}

// attached tells whether the broker still reads what a command wrote.
func (k *keeper) attached() bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	return len(k.readers) > 0
}
