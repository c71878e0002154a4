//go:build linux

// Package identity works on files with the rights of a sandbox's user.
package identity

import "runtime"

// Do calls work with the file-system identity of a user, which does not matter for signals, and without
// supplementary groups. It uses a thread that ends afterwards. The process needs CAP_SETUID and CAP_SETGID.
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
