//go:build linux

// Package proc reads and ends the processes that this one can see in /proc.
package proc

import (
	"bytes"
	"os"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// Table maps every living process of the sandbox to its parent. Zombies are left out.
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

// ParentOf reads /proc/<pid>/stat: "pid (name) state ppid …", where the name may hold anything.
func ParentOf(pid int) (parent int, alive bool) {
	b, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	if err != nil {
		return 0, false
	}
	f := strings.Fields(string(b[bytes.LastIndexByte(b, ')')+1:]))
	if len(f) < 2 || f[0] == "Z" || f[0] == "X" {
		return 0, false
	}
	parent, err = strconv.Atoi(f[1])
	return parent, err == nil
}

// Except removes a process from the table, and returns it.
func (t Table) Except(pid int) Table {
	delete(t, pid)
	return t
}

// Under returns the processes that descend from root.
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

// KillTree ends every descendant of root, a subreaper, within the limit.
func KillTree(root int, limit time.Time) {
	KillAll(func() []int { return All().Under(root) }, limit)
}

// KillAll ends all processes that find returns, until it returns none or the limit. It stops them all before it kills
// any: a stopped process forks no more but still counts against the PID limit, so a fork bomb runs dry.
func KillAll(find func() []int, limit time.Time) {
	for time.Now().Before(limit) {
		victims := Freeze(find, limit)
		if len(victims) == 0 {
			return
		}
		for pid := range victims {
			_ = unix.Kill(pid, unix.SIGKILL) // one that is gone already is what we want
		}
		time.Sleep(time.Millisecond)
	}
}

// Freeze stops all processes that find returns, until it returns no others or the limit, and returns them.
func Freeze(find func() []int, limit time.Time) map[int]bool {
	frozen := map[int]bool{}
	for grown := true; grown && time.Now().Before(limit); {
		grown = false
		for _, pid := range find() {
			if !frozen[pid] {
				_ = unix.Kill(pid, unix.SIGSTOP) // one that is gone already cannot fork
				frozen[pid], grown = true, true
			}
		}
	}
	return frozen
}

// Standing reports whether a process is stopped, or no more.
func Standing(pid int) bool {
	b, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	if err != nil {
		return true
	}
	state := bytes.TrimSpace(b[bytes.LastIndexByte(b, ')')+1:])
	return len(state) > 0 && bytes.IndexByte([]byte("TtZX"), state[0]) >= 0
}
