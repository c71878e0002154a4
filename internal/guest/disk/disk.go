//go:build linux

// Package disk bounds what a sandbox keeps on disk.
package disk

import (
	"errors"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/guest/cgroup"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/guest/deadline"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/guest/proc"
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
	// killTime bounds the ending of programs.
	killTime = 5 * time.Second
)

// Limits bound what the sandbox keeps.
type Limits struct {
	Bytes int64
	Roots []string
	// Writers returns the processes that are ended when the sandbox keeps more, and Holders those whose open files count.
	Writers, Holders func() []int
	// Ended is called with the time since boot before they are ended.
	Ended func(sinceBoot time.Duration)
	// Shut lets no program start until the returned function is called: it would be ended with the others. It is not
	// called where it is nil.
	Shut func() (open func())
}

// Watch holds the limits. It never returns.
func Watch(limits Limits) {
	d := watch{limits: limits, elsewhere: mountsBelow(limits.Roots), pause: minDiskPause}
	for {
		time.Sleep(d.pause)
		d.look()
	}
}

type watch struct {
	limits    Limits
	elsewhere map[inode]bool // roots of mounts below the limits' own, which do not count
	pause     time.Duration
	others    time.Duration // CPU time of the programs when last measured
	used      int64         // when last measured
	torn      int
}

// look measures if anything has run since, and ends programs that have used more than they may.
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
		used = max(d.used+1, d.limits.Bytes+1) // what cannot be measured is taken to grow
	}
	d.torn = 0
	if grown := used > d.used; used > d.limits.Bytes && grown {
		d.end()
		if after, err := d.measure(); err == nil {
			used = after
		}
	}
	d.used = used
}

// end ends the programs.
func (d *watch) end() {
	if d.limits.Shut != nil {
		open := d.limits.Shut()
		defer open()
	}
	if now, err := deadline.ReadClocks(); err == nil {
		d.limits.Ended(now.SinceBoot)
	}
	proc.KillAll(d.limits.Writers, time.Now().Add(killTime))
}

// othersCPU returns the CPU time that all but process 1 have used. A sandbox in which nothing ran has written nothing.
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

// Exceeded is what a command writes that was ended for it.
const Exceeded = "guest: disk_exceeded: /workspace and /data hold more than the sandbox may keep: " +
	"its programs were ended; remove files to go on\n"

// errTorn is a tree that changed under the walk, so that not all of it was seen.
var errTorn = errors.New("directories were moved meanwhile")
