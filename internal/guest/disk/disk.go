//go:build linux

// Package disk limits what a sandbox keeps on disk.
package disk

import (
	"errors"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/guest/cgroup"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/guest/deadline"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/guest/proc"
)

// Process 1 measures the disk use while programs run, and kills them if the use has grown and exceeds the limit. So
// programs that remove files may continue. Meanwhile each program's file size limit bounds a single file. This works
// against programs that write files normally. Only a file-system quota works against programs that hide files without a
// name.

const (
	// minDiskPause and maxDiskPause bound the pause between two measurements, maxIdlePause applies if nothing
	// ran.
	minDiskPause = 500 * time.Millisecond
	maxDiskPause = 5 * time.Second
	maxIdlePause = 2 * time.Second
	// diskShare is the length of the pause, as a multiple of the CPU time of the measurement.
	diskShare = 20
	// tornLimit is how many measurements in a row may fail because directories were moved, or because something prevented
	// process 1 from measuring.
	tornLimit = 3
	// killTime limits the killing of programs.
	killTime = 5 * time.Second
)

// Limits configure the limits of the sandbox.
type Limits struct {
	Bytes int64
	Roots []string
	// As is the file-system identity of the calling thread.
	As Identity
	// Writers returns the processes to kill when the limit is exceeded; Holders returns the processes whose
	// open files count.
	Writers, Holders func() []int
	// Measured is called with the bytes that are left after each measurement, less than 0 if the limit is exceeded. It
	// must not wait. It may be nil.
	Measured func(left int64)
	// Ended is called with the time since boot before the processes are killed.
	Ended func(sinceBoot time.Duration)
	// Shut prevents new programs, which would be killed with the others, until the returned function is
	// called. It may be nil.
	Shut func() (open func())
}

// Watch enforces the limits. It never returns.
func Watch(limits Limits) {
	d := watch{limits: limits, elsewhere: mountsBelow(limits.Roots), pause: minDiskPause}
	for {
		time.Sleep(d.pause)
		d.look()
	}
}

type watch struct {
	limits    Limits
	elsewhere map[inode]bool // roots of mounts below the directories; they do not count
	pause     time.Duration
	others    time.Duration // CPU time of the programs at the last measurement
	used      int64         // at the last measurement
	torn      int
}

// look measures if anything has run since, and kills programs that exceed the limit.
func (d *watch) look() {
	others, known := othersCPU()
	if known && others == d.others {
		d.pause = min(2*d.pause, maxIdlePause)
		return
	}
	d.others = others
	began := ownCPU()
	used, err := d.measure()
	d.pause = min(max(diskShare*(ownCPU()-began), minDiskPause), maxDiskPause)
	if err != nil {
		if d.torn++; d.torn < tornLimit {
			return
		}
		used = max(d.used+1, d.limits.Bytes+1) // treat unmeasurable use as growth
	}
	d.torn = 0
	if grown := used > d.used; used > d.limits.Bytes && grown {
		d.end()
		if after, err := d.measure(); err == nil {
			used = after
		}
	}
	d.used = used
	if d.limits.Measured != nil {
		d.limits.Measured(d.limits.Bytes - used)
	}
}

// end kills the programs.
func (d *watch) end() {
	if d.limits.Shut != nil {
		open := d.limits.Shut()
		defer open()
	}
	if now, err := deadline.SinceBoot(); err == nil {
		d.limits.Ended(now)
	}
	proc.KillAll(d.limits.Writers, time.Now().Add(killTime))
}

// othersCPU returns the CPU time of everything except process 1. If nothing ran in a sandbox, it has written nothing.
func othersCPU() (time.Duration, bool) {
	all, err := cgroup.CPUTime()
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

// Exceeded is the message in the output of a command that was killed for the disk limit.
const Exceeded = "guest: disk_exceeded: /workspace and /data exceed the disk limit of the sandbox: " +
	"its programs were killed; remove files to continue\n"

// errTorn: the tree changed during the walk, so that parts were missed.
var errTorn = errors.New("directories were moved meanwhile")
