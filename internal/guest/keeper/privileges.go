//go:build linux

package keeper

import (
	"errors"
	"fmt"
	"os"
	"runtime"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/guest"
)

// kept are the capabilities of process 1 after it has handed over the directories. It needs them to start commands as
// another user, to drop their capabilities, and to signal them.
const kept = 1<<unix.CAP_SETUID | 1<<unix.CAP_SETGID | 1<<unix.CAP_SETPCAP | 1<<unix.CAP_KILL

// noNewPrivileges applies to all threads and to what they start.
func noNewPrivileges() error {
	return onAllThreads("allow no new privileges", unix.SYS_PRCTL, unix.PR_SET_NO_NEW_PRIVS, 1)
}

// keptFor returns the capabilities that process 1 keeps. A broker that saves a whole directory reads files
// whatever their modes.
func keptFor(cfg Config) uint64 {
	if cfg.Port != 0 {
		return kept | 1<<unix.CAP_DAC_OVERRIDE
	}
	return kept
}

// drop makes all threads the keeper's user, with only the kept capabilities.
func drop(kept uint64) error {
	for c := uintptr(0); c <= unix.CAP_LAST_CAP; c++ {
		if kept&(1<<c) != 0 {
			continue
		}
		// A drop stops all threads, which have the same set. An engine leaves few capabilities in it.
		has, err := unix.PrctlRetInt(unix.PR_CAPBSET_READ, c, 0, 0, 0)
		if errors.Is(err, unix.EINVAL) || err == nil && has == 0 { // EINVAL: the kernel does not know this capability
			continue
		}
		if err != nil {
			return fmt.Errorf("read the bounding set: %w", err)
		}
		if err := onAllThreads("narrow the bounding set", unix.SYS_PRCTL, unix.PR_CAPBSET_DROP, c); err != nil {
			return err
		}
	}
	if err := onAllThreads("keep capabilities", unix.SYS_PRCTL, unix.PR_SET_KEEPCAPS, 1); err != nil {
		return err
	}
	id := guest.KeeperID
	for _, change := range []func() error{
		func() error { return syscall.Setgroups(nil) },
		func() error { return syscall.Setresgid(id, id, id) },
		func() error { return syscall.Setresuid(id, id, id) },
	} { // for all threads
		if err := change(); err != nil {
			return fmt.Errorf("become user %d: %w", id, err)
		}
	}
	header := &unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	data := &[2]unix.CapUserData{{Effective: uint32(kept), Permitted: uint32(kept)}}
	err := onAllThreads("drop capabilities", unix.SYS_CAPSET, uintptr(unsafe.Pointer(header)),
		uintptr(unsafe.Pointer(data)))
	runtime.KeepAlive(header)
	runtime.KeepAlive(data)
	return err
}

func onAllThreads(what string, call, a, b uintptr) error {
	if _, _, errno := syscall.AllThreadsSyscall6(call, a, b, 0, 0, 0, 0); errno != 0 {
		return fmt.Errorf("%s: %w", what, errno)
	}
	return nil
}

// setDumpable decides who may trace this process and who owns its files in /proc.
func setDumpable(dumpable bool) error {
	value := uintptr(0)
	if dumpable {
		value = 1
	}
	return unix.Prctl(unix.PR_SET_DUMPABLE, value, 0, 0, 0)
}

// setName sets the name of the first thread, which is the process's name.
func setName(name string) error {
	b, err := unix.BytePtrFromString(name)
	if err != nil {
		return err
	}
	return unix.Prctl(unix.PR_SET_NAME, uintptr(unsafe.Pointer(b)), 0, 0, 0)
}

// scoreAbove returns an oom_score_adj above this process's, so that the kernel kills a command first.
func scoreAbove() int {
	const victim, more, most = 500, 100, 1000
	own := 0
	if b, err := os.ReadFile("/proc/self/oom_score_adj"); err == nil {
		_, _ = fmt.Sscan(string(b), &own) // 0 on failure
	}
	return min(most, max(victim, own+more))
}
