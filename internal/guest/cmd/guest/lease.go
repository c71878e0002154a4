//go:build linux

package main

import (
	"os"
	"time"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/guest/deadline"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/guest/lease"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/guest/wire"
)

// awaitLease waits for the sandbox's lease and takes it over, before any command runs. It returns
// false when the sandbox is stopped first.
func awaitLease(stop <-chan os.Signal, timer *deadline.Timer, ends wire.Ends) bool {
	l := lease.Read()
	for ; l == nil; l = lease.Read() {
		select {
		case <-stop:
			return false
		case <-time.After(lease.Pause):
		}
	}
	now, err := deadline.ReadClocks()
	if err != nil {
		fatal("%v", err)
	}
	if left := now.Left(l.Ends); left < now.Left(ends) { // never later than what it began with
		if err := timer.Set(left); err != nil {
			fatal("%v", err)
		}
	}
	if err := writeConfig(l.Config); err != nil {
		fatal("write %s: %v", configFile, err)
	}
	become(leasedName)
	return true
}
