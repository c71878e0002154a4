//go:build linux

package main

import (
	"os"
	"strconv"
	"testing"
)

// TestMain is also the guest as the last child of a shell, which the tests of shells need.
func TestMain(m *testing.M) {
	if descriptor, err := strconv.Atoi(os.Getenv("GO_TEST_STATE")); err == nil {
		pipe, err := strconv.ParseUint(os.Args[len(os.Args)-1], 10, 64)
		if err != nil {
			fatal("%v", err)
		}
		runState(descriptor, pipe)
		return
	}
	os.Exit(m.Run())
}
