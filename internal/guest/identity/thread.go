//go:build linux

package identity

import (
	"errors"
	"fmt"

	"golang.org/x/sys/unix"
)

// Take gives the calling thread the file-system identity of a user for good, and fails unless the kernel confirms it.
//
// A kernel without file-system identities, as gVisor's, looks at a thread's effective user. That one is changed there alone:
// who may signal or trace a thread depends on its real and saved user, which stay.
func Take(uid, gid int) error {
	err := change(gid, unix.SetfsgidRetGid, func() error { return setEffective(unix.SYS_SETRESGID, gid, unix.Getegid) })
	if err != nil {
		return fmt.Errorf("take the file-system group %d: %w", gid, err)
	}
	err = change(uid, unix.SetfsuidRetUid, func() error { return setEffective(unix.SYS_SETRESUID, uid, unix.Geteuid) })
	if err != nil {
		return fmt.Errorf("take the file-system user %d: %w", uid, err)
	}
	return nil
}

// change changes an id of the thread, or the effective one where the kernel has no other. The kernel reports the id before
// the change, and no error: so it is asked twice.
func change(to int, set func(int) (int, error), effective func() error) error {
	_, err := set(to)
	if errors.Is(err, unix.ENOSYS) {
		return effective()
	}
	if err != nil {
		return err
	}
	now, err := set(to)
	if err == nil && now != to {
		err = fmt.Errorf("it is still %d", now)
	}
	return err
}

// setEffective changes the effective id of the calling thread. Package syscall would change that of all threads.
func setEffective(call uintptr, to int, get func() int) error {
	const keep = ^uintptr(0)
	if _, _, errno := unix.RawSyscall(call, keep, uintptr(to), keep); errno != 0 {
		return errno
	}
	if now := get(); now != to {
		return fmt.Errorf("it is still %d", now)
	}
	return nil
}
