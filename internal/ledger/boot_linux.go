package ledger

import (
	"os"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// sinceBoot is the time since the host booted, with the time that it was suspended.
func sinceBoot() time.Duration {
	var t unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_BOOTTIME, &t); err != nil {
		panic(err) // every Linux that Go runs on has this clock
	}
	return time.Duration(t.Nano())
}

// thisBoot names the host's current boot; a name of its own where the host does not say.
func thisBoot() string {
	id, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return sandbox.RandomIDs(sandbox.SandboxIDLength)
	}
	return strings.TrimSpace(string(id))
}
