//go:build linux

package main

import (
	"encoding/json"
	"errors"
	"math"
	"os"
	"runtime"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/guest/wire"
)

// clocks are what process 1 reads of its host's clocks.
type clocks struct {
	now       time.Time
	boot      string
	sinceBoot time.Duration // CLOCK_BOOTTIME: it counts on while the host sleeps and the sandbox is paused
}

func readClocks() clocks {
	var t unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_BOOTTIME, &t); err != nil {
		fatal("read the time since boot: %v", err)
	}
	id, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		id = nil // then the host's clock counts
	}
	return clocks{now: time.Now(), boot: strings.TrimSpace(string(id)), sinceBoot: time.Duration(t.Nano())}
}

// left returns how long a sandbox that starts or is assigned now may run. A step of the host's clock moves no deadline
// within one boot; after a reboot, nothing but that clock is left to ask.
func (c clocks) left(e wire.Ends) time.Duration {
	until := e.At.Sub(c.now)
	if e.Boot != "" && e.Boot == c.boot {
		until = e.SinceBoot - c.sinceBoot
	}
	return min(until, e.Left)
}

// parseEnds reads the argument of process 1. Without one, as on Cloudflare, the deadline is of the clock here.
func parseEnds(text string, deadline time.Time) wire.Ends {
	if text == "" {
		return wire.Ends{At: deadline, Left: math.MaxInt64}
	}
	var e wire.Ends
	if err := json.Unmarshal([]byte(text), &e); err != nil || e.At.IsZero() {
		fatal("read when the sandbox ends: %q: %v", text, err)
	}
	return e
}

// armDeadline ends process 1, and with it the sandbox, at the deadline.
func armDeadline(left time.Duration) (timer int) {
	fd, err := unix.TimerfdCreate(unix.CLOCK_BOOTTIME, unix.TFD_CLOEXEC)
	if err != nil {
		fatal("make the deadline's timer: %v", err)
	}
	setTimer(fd, left)
	waiting := make(chan struct{})
	go func() { // ends with the process
		runtime.LockOSThread()
		close(waiting)
		var ticks [8]byte
		for {
			if _, err := unix.Read(fd, ticks[:]); !errors.Is(err, unix.EINTR) {
				os.Exit(exitDeadline) // a timer that fails ends the sandbox too
			}
		}
	}()
	<-waiting
	return fd
}

func setTimer(fd int, left time.Duration) {
	spec := unix.ItimerSpec{Value: unix.NsecToTimespec(max(left, time.Nanosecond).Nanoseconds())}
	if err := unix.TimerfdSettime(fd, 0, &spec, nil); err != nil {
		fatal("set the deadline's timer: %v", err)
	}
}
