package engine

import (
	"os"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// bootOfHost returns the id of this machine's boot, and the CLOCK_BOOTTIME at which left has passed; "" if unknown. An
// engine in a virtual machine has another boot.
func bootOfHost(left time.Duration) (id string, sinceBoot time.Duration) {
	b, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return "", 0
	}
	var t unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_BOOTTIME, &t); err != nil {
		return "", 0
	}
	return strings.TrimSpace(string(b)), time.Duration(t.Nano()) + left
}
