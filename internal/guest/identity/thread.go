//go:build linux

package identity

import (
	"errors"
	"fmt"

	"golang.org/x/sys/unix"
)

// Take gives the calling thread the file-system identity of a user permanently, and fails unless the kernel
// confirms it.
//
// A kernel without file-system identities, such as gVisor's, checks a thread's effective user. Take changes
// only that one: the real and the saved user decide who may signal or trace a thread.
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

// change changes an id of the thread, or the effective one if the kernel has no other. The kernel returns the
// previous id and no error, so it is called twice.
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

// setEffective changes the effective id of the calling thread. Package syscall would change it for all
// threads.
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
