//go:build !linux

package storage

import (
	"time"

	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

var processStart = time.Now()

// sinceBoot is the time since this process began. On systems other than Linux, suspended time may count as a
// step of the clock, which prolongs leases by as much.
func sinceBoot() time.Duration { return time.Since(processStart) }

// thisBoot names this process: steps between two processes are unknown.
func thisBoot() string { return sandbox.RandomIDs(sandbox.SandboxIDLength) }
