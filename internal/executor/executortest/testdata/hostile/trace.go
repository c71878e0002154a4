//go:build linux

package main

import (
	"fmt"
	"os"
	"runtime"
	"syscall"
)

const (
	ptraceDetach    = 17
	ptraceAttach    = 16
	ptraceSeize     = 0x4206
	ptraceInterrupt = 0x4207
)

// traced begins to trace a process, and lets it go at once: one that is left stops at its next signal.
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

// traceStarts tries to trace every process that process 1 or the backend starts, and to open its memory, again and again
// from the moment it exists to its end, until a file exists.
func traceStarts(args []string) {
	runtime.LockOSThread()
	seized, opened := tally{name: "seize"}, tally{name: "open-memory"}
	met, living := map[int]bool{}, map[int]bool{}
	begin := latest()
	fmt.Println("ready")
	for round := 0; round%64 != 0 || !exists(args[0]); round++ {
		last := latest()
		for pid := max(begin+1, last-64); pid <= last+ahead; pid++ {
			if met[pid] || pid == os.Getpid() {
				continue
			}
			if p, found := look(pid); found && p.parent <= 1 {
				met[pid], living[pid] = true, true
				fmt.Printf("met %d\n", len(met))
			}
		}
		for pid := range living {
			err := traced(pid, ptraceSeize)
			seized.add(err == nil, fmt.Sprint("process ", pid))
			mem := write(procPath(pid, "mem"))
			opened.add(mem == nil, fmt.Sprint("process ", pid))
			if err == syscall.ESRCH && !exists(procPath(pid, "stat")) {
				delete(living, pid)
			}
		}
	}
	seized.print()
	opened.print()
}
