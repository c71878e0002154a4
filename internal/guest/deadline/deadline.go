//go:build linux

// Package deadline ends a sandbox at its deadline, by clocks that no program in the sandbox can set.
package deadline

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"os"
	"runtime"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/guest/wire"
)

// Clocks are readings of the host's clocks by process 1.
type Clocks struct {
	now       time.Time
	boot      string
	SinceBoot time.Duration // CLOCK_BOOTTIME: it continues while the host sleeps and while the sandbox is paused
}

// ReadClocks reads the clocks.
func ReadClocks() (Clocks, error) {
	since, err := SinceBoot()
	if err != nil {
		return Clocks{}, err
	}
	id, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		id = nil // without an id, the host's clock is used
	}
	return Clocks{now: time.Now(), boot: strings.TrimSpace(string(id)), SinceBoot: since}, nil
}

// SinceBoot reads CLOCK_BOOTTIME alone.
func SinceBoot() (time.Duration, error) {
	var t unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_BOOTTIME, &t); err != nil {
		return 0, fmt.Errorf("read the time since boot: %w", err)
	}
	return time.Duration(t.Nano()), nil
}

// Left returns how long a sandbox that starts or is assigned now may run. Within one boot, a step of the host's clock
// moves no deadline. After a reboot, only that clock is usable.
func (c Clocks) Left(e wire.Ends) time.Duration {
	until := e.At.Sub(c.now)
	if e.Boot != "" && e.Boot == c.boot {
		until = e.SinceBoot - c.SinceBoot
	}
	return min(until, e.Left)
}

// Parse parses the argument of process 1. Without one, as on Cloudflare, the deadline is by the local clock.
func Parse(text string, deadline time.Time) (wire.Ends, error) {
	if text == "" {
		return wire.Ends{At: deadline, Left: math.MaxInt64}, nil
	}
	var e wire.Ends
	if err := json.Unmarshal([]byte(text), &e); err != nil || e.At.IsZero() {
		return wire.Ends{}, fmt.Errorf("read when the sandbox ends: %q: %w", text, errors.Join(err))
	}
	return e, nil
}

// Timer calls a function at the deadline.
type Timer struct{ fd int }

// Arm returns a timer that calls end once, on a separate thread. A timer that fails also calls it.
func Arm(left time.Duration, end func()) (*Timer, error) {
	fd, err := unix.TimerfdCreate(unix.CLOCK_BOOTTIME, unix.TFD_CLOEXEC)
	if err != nil {
		return nil, fmt.Errorf("create the deadline's timer: %w", err)
	}
	t := &Timer{fd: fd}
	if err := t.Set(left); err != nil {
		return nil, errors.Join(err, unix.Close(fd))
	}
	waiting := make(chan struct{})
	go func() { // it ends with the process
		runtime.LockOSThread()
		close(waiting)
		var ticks [8]byte
		for {
			if _, err := unix.Read(fd, ticks[:]); !errors.Is(err, unix.EINTR) {
				end()
				return
			}
		}
	}()
	<-waiting
	return t, nil
}

// Set moves the deadline.
func (t *Timer) Set(left time.Duration) error {
	spec := unix.ItimerSpec{Value: unix.NsecToTimespec(max(left, time.Nanosecond).Nanoseconds())}
	if err := unix.TimerfdSettime(t.fd, 0, &spec, nil); err != nil {
		return fmt.Errorf("set the deadline's timer: %w", err)
	}
	return nil
}
