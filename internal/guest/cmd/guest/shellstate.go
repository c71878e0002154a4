//go:build linux

package main

import (
	"strconv"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/guest/shellstate"
)

// runState runs the program as the child of a shell.
func runState(descriptor int, pipe uint64) {
	if err := shellstate.Tell(descriptor, pipe); err != nil {
		fatal("%s", strconv.Quote(err.Error()))
	}
}
