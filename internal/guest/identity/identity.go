//go:build linux

// Package identity works on files as a sandbox's user would.
package identity

import "runtime"

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
