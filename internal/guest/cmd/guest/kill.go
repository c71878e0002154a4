//go:build linux

package main

import (
	"bytes"
	"os"
	"strconv"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/guest/proc"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/guest/wire"
)

func bytePointer(b []byte) uintptr { return uintptr(unsafe.Pointer(&b[0])) }

// runKill ends the helpers that run the command with this id, and all that descends from it.
func runKill(id string) wire.Result {
	limit := time.Now().Add(5 * time.Second)
	for _, pid := range helpers(id) {
		_ = unix.Kill(pid, unix.SIGSTOP) // gone already is fine
		proc.KillTree(pid, limit)
		_ = unix.Kill(pid, unix.SIGKILL)
	}
	for time.Now().Before(limit) {
		if len(helpers(id)) == 0 {
			return wire.Result{}
		}
		time.Sleep(time.Millisecond)
	}
	return wire.Result{Problem: wire.ProblemFailed, Message: "processes of command " + id + " survive"}
}

// helpers finds "guest exec -id <id>" by its command line, which stays readable for all.
func helpers(id string) []int {
	want := "\x00exec\x00-id\x00" + id + "\x00"
	var found []int
	for pid := range proc.All().Except(os.Getpid()) {
		b, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/cmdline")
		if err == nil && bytes.Contains(b, []byte(want)) {
			found = append(found, pid)
		}
	}
	return found
}
