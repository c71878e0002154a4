//go:build linux

package main

import (
	"bytes"
	"errors"
	"os"
	"strconv"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
)

// Process 1 bounds what a sandbox keeps on disk. It measures while programs run, and ends them when more is used than
// before and more than may be: so what removes files goes on. Each program's size limit bounds a single file meanwhile.
// This bounds what programs do; only a quota of the file system bounds programs that hide files without a name.

const (
	// minDiskPause and maxDiskPause are between two measurements, maxIdlePause where nothing has run.
	minDiskPause = 500 * time.Millisecond
	maxDiskPause = 5 * time.Second
	maxIdlePause = 2 * time.Second
	// diskShare is how many times as long as it measured, in CPU time, process 1 then pauses.
	diskShare = 20
	// tornLimit is how many measurements in a row may fail because directories were moved meanwhile, or because
	// process 1 was kept from measuring.
	tornLimit = 3
)

// diskLimits bound what the sandbox keeps.
type diskLimits struct {
	bytes int64
	roots []string
}

// diskEnded is when process 1 last ended programs, as time since boot; 0 is never.
var diskEnded atomic.Int64

// watchDisk holds the limits. It ends with the process.
func watchDisk(limits diskLimits) {
	d := diskWatch{limits: limits, elsewhere: mountsBelow(limits.roots), pause: minDiskPause}
	for {
		time.Sleep(d.pause)
		d.look()
	}
}

type diskWatch struct {
	limits    diskLimits
	elsewhere map[inode]bool // roots of mounts below the limits' own, which do not count
	pause     time.Duration
	others    time.Duration // CPU time of the programs when last measured
	used      int64         // when last measured
	torn      int
}

// look measures if anything has run since, and ends programs that have used more than they may.
func (d *diskWatch) look() {
	others, known := othersCPU()
	if known && others == d.others {
		d.pause = min(2*d.pause, maxIdlePause)
		return
	}
	d.others = others
	began := ownCPU()
	used, err := measureDisk(d.limits.roots, d.elsewhere)
	d.pause = min(max(diskShare*(ownCPU()-began), minDiskPause), maxDiskPause)
	if err != nil {
		if d.torn++; d.torn < tornLimit {
			return
		}
		used = max(d.used+1, d.limits.bytes+1) // what cannot be measured is taken to grow
	}
	d.torn = 0
	if grown := used > d.used; used > d.limits.bytes && grown {
		diskEnded.Store(int64(readClocks().sinceBoot))
		killAll(writers, time.Now().Add(killTime))
		if after, err := measureDisk(d.limits.roots, d.elsewhere); err == nil {
			used = after
		}
	}
	d.used = used
}

// othersCPU returns the CPU time that all but process 1 have used. A sandbox in which nothing ran has written nothing.
func othersCPU() (time.Duration, bool) {
	all, err := cpuTime()
	if err != nil {
		return 0, false
	}
	const grain = 100 * time.Microsecond // the two clocks differ by less
	return (all - ownCPU()).Round(grain), true
}

func ownCPU() time.Duration {
	var u unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_SELF, &u); err != nil {
		return 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// writers are all processes but process 1 and helpers; of those, the ones that write files for the reconciler.
func writers() (found []int) {
	for pid, parent := range processes().except(1) {
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

const diskExceeded = "guest: disk_exceeded: /workspace and /data hold more than the sandbox may keep: " +
	"its programs were ended; remove files to go on\n"

// errTorn is a tree that changed under the walk, so that not all of it was seen.
var errTorn = errors.New("directories were moved meanwhile")
