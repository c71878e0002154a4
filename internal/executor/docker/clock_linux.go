package docker

import (
	"os"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// bootOfHost names the boot of this machine, and returns the moment that is so far away by its CLOCK_BOOTTIME; "" where
// it does not say. An engine in a virtual machine is in another boot.
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
