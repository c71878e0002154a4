package storage

import (
	"os"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// sinceBoot is the time since the host booted, including suspended time.
func sinceBoot() time.Duration {
	var t unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_BOOTTIME, &t); err != nil {
		panic(err) // every Linux that Go runs on has this clock
	}
	return time.Duration(t.Nano())
}

// thisBoot identifies the host's current boot; a random name if the host does not report one.
func thisBoot() string {
	id, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return sandbox.RandomIDs(sandbox.SandboxIDLength)
	}
	return strings.TrimSpace(string(id))
}
