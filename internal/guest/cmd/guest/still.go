//go:build linux

package main

import (
	"errors"
	"fmt"
	"os"
	"os/signal"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/guest/proc"
)

const (
	// standLimit is how long processes may take to stop: one in a system call ends that first.
	standLimit = 5 * time.Second
	// stillLimit is how long a sandbox stands still at most, should nobody take what is read meanwhile.
	stillLimit = 2 * time.Minute
)

// standStill stops every process of the sandbox but this one and process 1, and returns once they stand. goOn
// has those go on that did not stand before; it is never nil. It needs user 0 where they belong to several users.
func standStill() (goOn func(), err error) {
	signal.Ignore(unix.SIGPIPE) // a reader that goes away must not leave them standing
	stood := map[int]bool{}
	for pid := range proc.All() {
		stood[pid] = proc.Standing(pid)
	}
	goOn = func() {
		for pid := range others() {
			if !stood[pid] {
				_ = unix.Kill(pid, unix.SIGCONT) // one that is gone needs none
			}
		}
	}
	time.AfterFunc(stillLimit, func() {
		goOn()
		fatal("nobody took what was read for %s", stillLimit)
	})
	for limit := time.Now().Add(standLimit); ; time.Sleep(time.Millisecond) {
		if err := unix.Kill(-1, unix.SIGSTOP); err != nil && !errors.Is(err, unix.ESRCH) {
			return goOn, fmt.Errorf("stop the processes of the sandbox: %w", err)
		}
		running := 0
		for pid := range others() {
			if !proc.Standing(pid) {
				running = pid
			}
		}
		if running == 0 {
			return goOn, nil
		}
		if time.Now().After(limit) {
			return goOn, fmt.Errorf("process %d does not stop within %s", running, standLimit)
		}
	}
}

// endOthers ends every process but this one and process 1, as the stop of a sandbox does.
func endOthers() {
	signal.Ignore(unix.SIGPIPE)
	_ = unix.Kill(-1, unix.SIGTERM) // nobody may be left
	for limit := time.Now().Add(stopGrace); len(others()) > 0; time.Sleep(5 * time.Millisecond) {
		if time.Now().After(limit) {
			_ = unix.Kill(-1, unix.SIGKILL) // nobody may be left
		}
	}
}

// others are the processes but for this one and process 1.
func others() proc.Table { return proc.All().Except(os.Getpid()).Except(1) }
