//go:build linux

// Package identity works on files as a sandbox's user would.
package identity

import (
	"fmt"
	"runtime"

	"golang.org/x/sys/unix"
)

// Do calls work with the file-system identity of a user, which signals do not look at, and without supplementary groups.
// The thread that it takes ends afterwards. The process needs CAP_SETUID and CAP_SETGID.
func Do(uid, gid int, work func() error) error {
	done := make(chan error, 1)
	go func() {
		runtime.LockOSThread() // without an unlock, the thread ends with the goroutine
		err := Take(uid, gid)
		if err == nil {
			err = work()
		}
		done <- err
	}()
	return <-done
}

// Take gives the calling thread the file-system identity for good.
func Take(uid, gid int) error {
	if err := unix.Setfsgid(gid); err != nil {
		return fmt.Errorf("take the file-system group %d: %w", gid, err)
	}
	if err := unix.Setfsuid(uid); err != nil {
		return fmt.Errorf("take the file-system user %d: %w", uid, err)
	}
	// The kernel reports no error, but what was before.
	if now, err := unix.SetfsgidRetGid(gid); err != nil || now != gid {
		return fmt.Errorf("take the file-system group %d: it is %d: %w", gid, now, err)
	}
	if now, err := unix.SetfsuidRetUid(uid); err != nil || now != uid {
		return fmt.Errorf("take the file-system user %d: it is %d: %w", uid, now, err)
	}
	return nil
}
