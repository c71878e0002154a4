// Package threads makes the runtime keep threads for later.
package threads

import "runtime"

// Spare makes the runtime keep n idle threads, so that a sandbox whose processes have used
// up the PID limit cannot make the guest fail for want of one.
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
