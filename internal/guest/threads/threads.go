// Package threads reserves threads for the Go runtime.
package threads

import "runtime"

// Spare makes the runtime keep n idle threads. Otherwise the guest could lack a thread once the sandbox has used up its
// PID limit, and fail.
func Spare(n int) {
	ready, release, done := make(chan struct{}), make(chan struct{}), make(chan struct{})
	for range n {
		go func() {
			runtime.LockOSThread()
			ready <- struct{}{}
			<-release
			runtime.UnlockOSThread()
			done <- struct{}{}
		}()
		<-ready
	}
	close(release)
	for range n {
		<-done
	}
}
