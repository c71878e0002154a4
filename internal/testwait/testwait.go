// Package testwait lets tests wait for another goroutine, process or machine.
package testwait

import (
	"testing"
	"time"
)

// The pause between two tries grows from the first to the last. So quick changes are seen soon, and slow ones are not
// disturbed by many tries.
const (
	firstPause = time.Millisecond
	lastPause  = 100 * time.Millisecond
)

// Until waits until ok returns true, and fails the test at a limit.
func Until(t testing.TB, limit time.Duration, what string, ok func() bool) {
	t.Helper()
	if !Poll(limit, ok) {
		t.Fatalf("not within %s: %s", limit, what)
	}
}

// NoError waits until try returns no error, and fails the test with its last one at a limit.
func NoError(t testing.TB, limit time.Duration, what string, try func() error) {
	t.Helper()
	var err error
	if !Poll(limit, func() bool { err = try(); return err == nil }) {
		t.Fatalf("not within %s: %s: %v", limit, what, err)
	}
}

// Poll waits until ok returns true, and reports whether it did within a limit. It calls ok at least once, and once more
// after the limit.
func Poll(limit time.Duration, ok func() bool) bool {
	pause := firstPause
	for end := time.Now().Add(limit); !ok(); pause = min(2*pause, lastPause) {
		if time.Now().After(end) {
			return false
		}
		time.Sleep(pause)
	}
	return true
}
