//go:build linux

package main

import (
	"fmt"
	"math"
	"os"
	"os/signal"
	"runtime"
	"syscall"
	"time"
	"unsafe"
)

// Functions of forked processes never call the Go runtime, because such a process has only one of its threads.

// forkIdle starts a process that waits forever.
//
//go:nosplit
func forkIdle() (uintptr, syscall.Errno) {
	pid, _, errno := syscall.RawSyscall6(syscall.SYS_CLONE, uintptr(syscall.SIGCHLD), 0, 0, 0, 0, 0)
	if errno == 0 && pid == 0 {
		for {
			syscall.RawSyscall6(syscall.SYS_PPOLL, 0, 0, 0, 0, 0, 0)
		}
	}
	return pid, errno
}

// forkForks starts a process that starts others, which do the same, each in its own session.
//
//go:nosplit
func forkForks() {
	pid, _, errno := syscall.RawSyscall6(syscall.SYS_CLONE, uintptr(syscall.SIGCHLD), 0, 0, 0, 0, 0)
	if errno == 0 && pid == 0 {
		for {
			syscall.RawSyscall6(syscall.SYS_SETSID, 0, 0, 0, 0, 0, 0)
			syscall.RawSyscall6(syscall.SYS_CLONE, uintptr(syscall.SIGCHLD), 0, 0, 0, 0, 0)
		}
	}
}

// hogged is the memory that each hog takes at a time.
const hogged = 4 << 20

// forkHog starts a process that takes memory until it is killed.
//
//go:nosplit
func forkHog() (uintptr, syscall.Errno) {
	pid, _, errno := syscall.RawSyscall6(syscall.SYS_CLONE, uintptr(syscall.SIGCHLD), 0, 0, 0, 0, 0)
	if errno == 0 && pid == 0 {
		for {
			const protection, flags = syscall.PROT_READ | syscall.PROT_WRITE, syscall.MAP_PRIVATE | syscall.MAP_ANON | syscall.MAP_POPULATE
			syscall.RawSyscall6(syscall.SYS_MMAP, 0, hogged, protection, flags, ^uintptr(0), 0)
		}
	}
	return pid, errno
}

var (
	now  syscall.Timespec
	line [64]byte
	last int64
	burn uint64
)

// nowhere is a descriptor that is not open: reads and writes do nothing.
const nowhere = math.MaxInt32

// forkSpinner starts a process that reads one byte from gate, and never waits after that. It writes the time in
// milliseconds to out, at most every 50 ms.
//
//go:nosplit
func forkSpinner(out, gate uintptr) syscall.Errno {
	pid, _, errno := syscall.RawSyscall6(syscall.SYS_CLONE, uintptr(syscall.SIGCHLD), 0, 0, 0, 0, 0)
	if errno != 0 || pid != 0 {
		return errno
	}
	syscall.RawSyscall6(syscall.SYS_READ, gate, uintptr(unsafe.Pointer(&line[len(line)-1])), 1, 0, 0, 0)
	for {
		for range 100_000 {
			burn++
		}
		syscall.RawSyscall6(syscall.SYS_CLOCK_GETTIME, 0, uintptr(unsafe.Pointer(&now)), 0, 0, 0, 0)
		ms := now.Sec*1000 + now.Nsec/1_000_000
		if ms < last+50 {
			continue
		}
		last = ms
		line[5+13] = '\n'
		for i, rest := 5+12, ms; i >= 5; i-- { // 13 digits until the year 2286
			line[i] = byte('0' + rest%10)
			rest /= 10
		}
		syscall.RawSyscall6(syscall.SYS_WRITE, out, uintptr(unsafe.Pointer(&line)), 5+13+1, 0, 0, 0)
	}
}

// spin weakens process 1 if it may, and keeps all processors busy with processes that each stay on one of them.
func spin(args []string) {
	runtime.LockOSThread()
	signal.Ignore(syscall.SIGTERM, syscall.SIGHUP)
	weaken := newReach()
	if threads, err := os.ReadDir("/proc/1/task"); err == nil {
		for _, thread := range threads {
			weaken.schedule(process{pid: 1}, uintptr(number(thread.Name())))
		}
	}
	for _, name := range weaken.names {
		weaken.tallies[name].print()
	}
	for nice := -20; nice < 0 && syscall.Setpriority(syscall.PRIO_PROCESS, 0, nice) != nil; nice++ {
		continue // take the highest allowed priority
	}
	copy(line[:], "tick ")
	// All start before the first one spins, because it would compete with the start of the others.
	gate, open, err := os.Pipe()
	if err != nil {
		fmt.Println("no pipe:", err)
		return
	}
	started := 0
	for i := range number(args[0]) {
		mask := [16]uint64{1 << (i % runtime.NumCPU())}
		_, _ = call(syscall.SYS_SCHED_SETAFFINITY, 0, unsafe.Sizeof(mask), uintptr(unsafe.Pointer(&mask)))
		if forkSpinner(1, gate.Fd()) == 0 {
			started++
		}
	}
	fmt.Printf("spinning %d\n", started)
	if _, err := open.Write(make([]byte, started)); err != nil {
		fmt.Println("the gate stays closed:", err)
	}
	time.Sleep(time.Hour)
}

// bomb takes processes or memory repeatedly while it lives.
func bomb(args []string) {
	signal.Ignore(syscall.SIGTERM, syscall.SIGHUP)
	fmt.Println("ready")
	time.Sleep(delay)
	if args[0] == "fork" {
		for {
			forkForks()
		}
	}
	living := 0
	for {
		for ; living < 4; living++ {
			if _, errno := forkHog(); errno != 0 {
				break
			}
		}
		if _, err := syscall.Wait4(-1, nil, 0, nil); err == nil {
			living--
		}
	}
}
