//go:build linux

package main

import (
	"bytes"
	"os"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/guest/disk"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/guest/proc"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/sandbox"
)

// diskEnded is when process 1 last ended programs, as time since boot; 0 is never.
var diskEnded atomic.Int64

// watchDisk bounds what the sandbox keeps. It ends with the process.
func watchDisk(bytes int64) {
	disk.Watch(disk.Limits{
		Bytes: bytes, Roots: sandbox.Roots, Writers: writers, Holders: holders,
		Ended: func(sinceBoot time.Duration) { diskEnded.Store(int64(sinceBoot)) },
	})
}

// holders are all processes but process 1 and helpers, whose files are what is kept of a command's output.
func holders() (found []int) {
	for pid, parent := range proc.All().Except(1) {
		if parent != 0 {
			found = append(found, pid)
		}
	}
	return found
}

// writers are all processes but process 1 and helpers; of those, the ones that write files for the reconciler.
func writers() (found []int) {
	for pid, parent := range proc.All().Except(1) {
		if parent != 0 || isTransfer(pid) {
			found = append(found, pid)
		}
	}
	return found
}

// isTransfer reports whether a helper puts files into the sandbox.
func isTransfer(pid int) bool {
	b, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/cmdline")
	if err != nil {
		return false
	}
	args := bytes.SplitN(b, []byte{0}, 3)
	return len(args) > 2 && (string(args[1]) == "tar-in" || string(args[1]) == "file")
}

// endedForDisk reports whether process 1 has ended programs since a moment, which is a time since boot.
func endedForDisk(since time.Duration) bool {
	conn, answer, _, err := askKeeper(keeperMessage{Disk: true})
	if err != nil {
		return false
	}
	_ = conn.Close() // all was said
	return time.Duration(answer.DiskEnded) > since
}
