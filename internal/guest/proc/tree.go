//go:build linux

// Package proc reads and ends the processes that this process can see in /proc.
package proc

import (
	"bytes"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// Table maps every living process of the sandbox to its parent, without zombies.
type Table map[int]int

// All returns the living processes.
func All() Table {
	t := Table{}
	dir, err := os.Open("/proc")
	if err != nil {
		return t
	}
	defer dir.Close()
	names, err := dir.Readdirnames(-1)
	if err != nil {
		return t
	}
	for _, name := range names {
		pid, err := strconv.Atoi(name)
		if err != nil {
			continue
		}
		if parent, alive := ParentOf(pid); alive {
			t[pid] = parent
		}
	}
	return t
}

// ParentOf reads the parent of a living process.
func ParentOf(pid int) (parent int, alive bool) {
	s, ok := readStat("/proc/" + strconv.Itoa(pid) + "/stat")
	return s.parent, ok && !s.dead()
}

// stat is an entry of /proc for a process or a thread.
type stat struct {
	state   byte
	parent  int
	threads int
}

// dead reports whether all threads of a process have ended. A process whose first thread has ended looks like a zombie
// while its other threads run.
func (s stat) dead() bool { return strings.IndexByte("ZX", s.state) >= 0 && s.threads < 2 }

// readStat parses "pid (name) state ppid …"; the name may contain anything. The number of threads is the 18th
// field after it.
func readStat(path string) (s stat, ok bool) {
	const state, parent, threads = 0, 1, 17
	b, err := os.ReadFile(path)
	if err != nil {
		return s, false
	}
	f := strings.Fields(string(b[bytes.LastIndexByte(b, ')')+1:]))
	if len(f) <= threads {
		return s, false
	}
	s.state = f[state][0]
	if s.parent, err = strconv.Atoi(f[parent]); err != nil {
		return s, false
	}
	s.threads, err = strconv.Atoi(f[threads])
	return s, err == nil
}

// Under returns the descendants of root.
func (t Table) Under(root int) []int {
	var found []int
	for pid := range t {
		for p, depth := t[pid], 0; p != 0 && depth < len(t); p, depth = t[p], depth+1 {
			if p == root {
				found = append(found, pid)
				break
			}
		}
	}
	return found
}

// KillTree ends every descendant of root, a subreaper, before limit.
func KillTree(root int, limit time.Time) {
	KillAll(func() []int { return All().Under(root) }, limit)
}

// KillAll ends all processes that find returns, until it returns none or the limit is reached. It stops all
// before it kills any: a stopped process cannot fork but counts against the PID limit, so a fork bomb runs
// dry.
func KillAll(find func() []int, limit time.Time) {
	for time.Now().Before(limit) {
		victims := Freeze(find, limit)
		if len(victims) == 0 {
			return
		}
		for pid := range victims {
			_ = unix.Kill(pid, unix.SIGKILL) // a process that is gone is fine
		}
		time.Sleep(time.Millisecond)
	}
}

// Freeze stops all processes that find returns, until it returns no new ones or the limit is reached, and
// returns them.
func Freeze(find func() []int, limit time.Time) map[int]bool {
	frozen := map[int]bool{}
	for grown := true; grown && time.Now().Before(limit); {
		grown = false
		for _, pid := range find() {
			if !frozen[pid] {
				_ = unix.Kill(pid, unix.SIGSTOP) // a process that is gone cannot fork
				frozen[pid], grown = true, true
			}
		}
	}
	return frozen
}

// IsStopped reports whether all threads of a process are stopped or have ended.
func IsStopped(pid int) bool { return MotionOf(pid) == Stopped }

// Motion is the most active state of a process's threads.
type Motion int

const (
	// Stopped: all threads are stopped, or have ended.
	Stopped Motion = iota
	// Waiting: the other threads are in an uninterruptible system call. They stop once it returns.
	Waiting
	// Running: a thread may run.
	Running
)

// MotionOf inspects all threads of a process. A process that is gone counts as Stopped.
func MotionOf(pid int) Motion {
	tasks := "/proc/" + strconv.Itoa(pid) + "/task/"
	entries, err := os.ReadDir(tasks)
	if err != nil {
		return Stopped
	}
	most := Stopped
	for _, e := range entries {
		s, ok := readStat(tasks + e.Name() + "/stat")
		switch {
		case !ok || strings.IndexByte("TtZX", s.state) >= 0:
		case s.state == 'D':
			most = max(most, Waiting)
		default:
			return Running
		}
	}
	return most
}

// HasUser reports whether any id of a process is the user.
func HasUser(pid, uid int) bool {
	text, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/status")
	if err != nil {
		return false // the process is gone
	}
	_, ids, _ := strings.Cut(string(text), "\nUid:")
	ids, _, _ = strings.Cut(ids, "\n")
	return slices.Contains(strings.Fields(ids), strconv.Itoa(uid))
}

// OfUser returns the processes with the user as any of their ids.
func OfUser(uid int) (found []int) {
	for pid := range All() {
		if HasUser(pid, uid) {
			found = append(found, pid)
		}
	}
	return found
}

// Threads counts the threads of all processes, as a process limit does.
func Threads() (n int) {
	for pid := range All() {
		if s, ok := readStat("/proc/" + strconv.Itoa(pid) + "/stat"); ok {
			n += s.threads
		}
	}
	return n
}

// Ran returns how long all threads of a process have run, including ended ones, to the nanosecond. It fails
// for a process that is gone.
func Ran(pid int) (time.Duration, error) {
	const scheduled = 2 // CPUCLOCK_SCHED of a process, as in clock_getcpuclockid
	var at unix.Timespec
	if err := unix.ClockGettime(int32(^pid<<3|scheduled), &at); err != nil {
		return 0, err
	}
	return time.Duration(at.Nano()), nil
}
