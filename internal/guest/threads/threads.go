// Package threads reserves threads of the runtime.
package threads

import "runtime"

// Spare makes the runtime keep n idle threads. Otherwise a sandbox that has used up its PID limit could make
// the guest fail for lack of one.
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
