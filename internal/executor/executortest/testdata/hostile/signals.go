//go:build linux

package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"syscall"
	"time"
)

// ahead is the number of ids after the latest one to try. A process that is being created has one of them.
const ahead = 16

// stopOthers stops every process that it may stop, in a tight loop, until a file exists. It prints how often it met a
// new process, and how often it stopped one.
func stopOthers(args []string) {
	all, started := tally{name: "stop-all"}, tally{name: "stop-started"}
	fmt.Println("ready")
	time.Sleep(delay)
	fmt.Println("begun")
	for round := 0; round%16 != 0 || !exists(args[0]); round++ {
		all.add(syscall.Kill(-1, syscall.SIGSTOP) == nil, "round "+strconv.Itoa(round))
		from := latest() - ahead
		for pid := max(2, from); pid < from+2*ahead; pid++ {
			if pid == os.Getpid() {
				continue
			}
			// This is kill for ids of processes only. For kill, a thread's id stands for its process, and the runtime may start
			// a thread of this process at any time.
			err := syscall.Tgkill(pid, pid, syscall.SIGSTOP)
			if err == syscall.ESRCH {
				continue
			}
			if p, found := look(pid); found && p.group == pid {
				started.add(err == nil, fmt.Sprint("process ", pid, " of parent ", p.parent))
			}
		}
	}
	_ = syscall.Kill(-1, syscall.SIGCONT) // the remaining processes
	all.print()
	started.print()
}

// mayhem kills every process that it may kill except its own two. These tick until they are ended.
func mayhem(args []string) {
	child := exec.Command("/proc/self/exe", "tick", filepath.Join(args[0], "child"))
	child.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := child.Start(); err != nil {
		fail(err.Error())
	}
	go tick([]string{filepath.Join(args[0], "parent")})
	kills, err := os.Create(filepath.Join(args[0], "kills"))
	if err != nil {
		fail(err.Error())
	}
	for {
		for _, pid := range processes() {
			if pid == os.Getpid() || pid == child.Process.Pid {
				continue
			}
			// One byte for each attempt: the file's size is the number of attempts.
			said := "-"
			if syscall.Kill(pid, syscall.SIGKILL) == nil && pid != 1 {
				said = "+"
			}
			if _, err := kills.WriteString(said); err != nil {
				fail(err.Error())
			}
		}
		time.Sleep(time.Millisecond)
	}
}

// tick appends the time in milliseconds to a file until it is ended.
func tick(args []string) {
	f, err := os.OpenFile(args[0], os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o644)
	if err != nil {
		fail(err.Error())
	}
	for ; ; time.Sleep(10 * time.Millisecond) {
		if _, err := fmt.Fprintf(f, "%d\n", time.Now().UnixMilli()); err != nil {
			fail(err.Error())
		}
	}
}
