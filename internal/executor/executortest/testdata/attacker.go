//go:build linux

// Command attacker tries to keep process 1 of its sandbox from ending the sandbox.
package main

import (
	"fmt"
	"os"
	"runtime"
	"syscall"
	"unsafe"
)

func try(name string, err error) {
	if err != nil {
		fmt.Printf("%s: refused: %v\n", name, err)
		return
	}
	fmt.Printf("%s: succeeded\n", name)
}

func call(number, a, b, c, d uintptr) error {
	if _, _, errno := syscall.RawSyscall6(number, a, b, c, d, 0, 0); errno != 0 {
		return errno
	}
	return nil
}

// System calls without a number in package syscall. amd64 and arm64 share their numbers.
const (
	sysPidfdOpen  = 434
	sysPidfdGetfd = 438
)

func main() {
	runtime.LockOSThread()
	const ptraceAttach, ptraceSeize = 16, 0x4206
	try("ptrace attach", call(syscall.SYS_PTRACE, ptraceAttach, 1, 0, 0))
	try("ptrace seize", call(syscall.SYS_PTRACE, ptraceSeize, 1, 0, 0))
	mem, err := os.OpenFile("/proc/1/mem", os.O_RDWR, 0)
	try("open memory", err)
	_ = mem
	_, err = os.ReadDir("/proc/1/fd")
	try("list descriptors", err)
	try("oom_score_adj", os.WriteFile("/proc/1/oom_score_adj", []byte("1000"), 0))
	pidfd, _, errno := syscall.RawSyscall(sysPidfdOpen, 1, 0, 0)
	if errno == 0 {
		for fd := uintptr(3); fd < 10; fd++ {
			try("take a descriptor", call(sysPidfdGetfd, pidfd, fd, 0, 0))
		}
	}
	for number, name := range map[uintptr]string{7: "prlimit NOFILE", 6: "prlimit NPROC", 3: "prlimit STACK"} {
		limit := [2]uint64{0, 0}
		try(name, call(syscall.SYS_PRLIMIT64, 1, number, uintptr(unsafe.Pointer(&limit)), 0))
	}
	try("nice", syscall.Setpriority(syscall.PRIO_PROCESS, 1, 19))
	const schedIdle = 5
	parameter := int32(0)
	try("scheduler", call(syscall.SYS_SCHED_SETSCHEDULER, 1, schedIdle, uintptr(unsafe.Pointer(&parameter)), 0))
	mask := uint64(1)
	try("affinity", call(syscall.SYS_SCHED_SETAFFINITY, 1, 8, uintptr(unsafe.Pointer(&mask)), 0))
	for _, s := range []struct {
		name string
		sig  syscall.Signal
	}{{"SIGSTOP", syscall.SIGSTOP}, {"SIGTSTP", syscall.SIGTSTP}, {"SIGKILL", syscall.SIGKILL}} {
		try(s.name, syscall.Kill(1, s.sig))
	}
	// Leave a process behind that keeps stopping process 1, and keep all processors busy.
	child, _, errno := syscall.RawSyscall(syscall.SYS_CLONE, uintptr(syscall.SIGCHLD), 0, 0)
	if errno == 0 && child == 0 {
		for {
			syscall.RawSyscall(syscall.SYS_KILL, 1, uintptr(syscall.SIGSTOP), 0)
		}
	}
}
