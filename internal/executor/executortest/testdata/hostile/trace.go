//go:build linux

package main

import (
	"fmt"
	"runtime"
	"syscall"
)

const (
	ptraceDetach    = 17
	ptraceAttach    = 16
	ptraceSeize     = 0x4206
	ptraceInterrupt = 0x4207
)

// traced begins to trace a process, and detaches immediately. A process that stays traced stops at its next signal.
func traced(pid int, request uintptr) error {
	if _, errno := call(syscall.SYS_PTRACE, request, uintptr(pid)); errno != 0 {
		return errno
	}
	if request == ptraceSeize {
		_, _ = call(syscall.SYS_PTRACE, ptraceInterrupt, uintptr(pid))
	}
	_, _ = syscall.Wait4(pid, nil, syscall.WALL, nil)
	_, _ = call(syscall.SYS_PTRACE, ptraceDetach, uintptr(pid))
	return nil
}

// traceStarts tries to trace every new process and to open its memory, repeatedly from its start to its end, until a
// file exists. It has met a command if it sees the process first with the user of process 1, and then with the
// sandbox's own.
func traceStarts(args []string) {
	runtime.LockOSThread()
	keeper, found := look(1)
	if !found {
		fail("process 1 has no status")
	}
	seized, opened := tally{name: "seize"}, tally{name: "open-memory"}
	old := map[int]bool{}
	for _, pid := range processes() {
		old[pid] = true // including the attacker, which starts none
	}
	starting := map[int]bool{} // whether each living process had the user of process 1 so far
	met := 0
	fmt.Println("ready")
	for round := 0; round%64 != 0 || !exists(args[0]); round++ {
		last := latest()
		for pid := max(1, last-64); pid <= last+ahead; pid++ {
			if _, known := starting[pid]; known || old[pid] {
				continue
			}
			if p, found := look(pid); found && p.group == pid {
				starting[pid] = p.uids == keeper.uids
			}
		}
		for pid, started := range starting {
			err := traced(pid, ptraceSeize)
			seized.add(err == nil, fmt.Sprint("process ", pid))
			mem := write(procPath(pid, "mem"))
			opened.add(mem == nil, fmt.Sprint("process ", pid))
			p, found := look(pid)
			switch {
			case !found:
				delete(starting, pid)
			case started && p.own():
				starting[pid] = false
				met++
				fmt.Printf("met %d\n", met)
			}
		}
	}
	seized.print()
	opened.print()
}
