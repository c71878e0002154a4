//go:build linux

package main

import (
	"bytes"
	"os"
	"strconv"
	"strings"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/guest/wire"
)

func bytePointer(b []byte) uintptr { return uintptr(unsafe.Pointer(&b[0])) }

// table maps every living process of the sandbox to its parent. Zombies are left out.
type table map[int]int

func processes() table {
	t := table{}
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
		if parent, alive := parentOf(pid); alive {
			t[pid] = parent
		}
	}
	return t
}

// parentOf reads /proc/<pid>/stat: "pid (name) state ppid …", where the name may hold anything.
func parentOf(pid int) (parent int, alive bool) {
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

func (t table) except(pid int) table {
	delete(t, pid)
	return t
}

// under returns the processes that descend from root.
func (t table) under(root int) []int {
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

// killTree ends every descendant of root, a subreaper, within the limit.
func killTree(root int, limit time.Time) {
	killAll(func() []int { return processes().under(root) }, limit)
}

// killAll ends all processes that find returns, until it returns none or the limit. It stops them all before it kills
// any: a stopped process forks no more but still counts against the PID limit, so a fork bomb runs dry.
func killAll(find func() []int, limit time.Time) {
	for time.Now().Before(limit) {
		victims := freeze(find, limit)
		if len(victims) == 0 {
			return
		}
		for pid := range victims {
			_ = unix.Kill(pid, unix.SIGKILL) // one that is gone already is what we want
		}
		time.Sleep(time.Millisecond)
	}
}

func freeze(find func() []int, limit time.Time) map[int]bool {
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

// runKill ends the helpers that run the command with this id, and all that descends from it.
func runKill(id string) wire.Result {
	limit := time.Now().Add(5 * time.Second)
	for _, pid := range helpers(id) {
		_ = unix.Kill(pid, unix.SIGSTOP) // gone already is fine
		killTree(pid, limit)
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
	for pid := range processes().except(os.Getpid()) {
		b, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/cmdline")
		if err == nil && bytes.Contains(b, []byte(want)) {
			found = append(found, pid)
		}
	}
	return found
}
