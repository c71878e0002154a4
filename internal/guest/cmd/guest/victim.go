//go:build linux

package main

import (
	"errors"
	"os"
	"runtime"
	"strconv"
	"syscall"

	"golang.org/x/sys/unix"
)

// victimScore is above the score of process 1, which commands would inherit.
const victimScore = "500"

// startAsVictim starts a program which the kernel, when memory runs out, ends before process 1 and with it the whole
// sandbox. The guest itself is closed to its own user, so it cannot change its own score for a child to inherit. It
// changes that of the child, and traces the child until then: what the child starts must inherit the score.
func startAsVictim(program string, args []string, attr syscall.ProcAttr) (pid int, err error) {
	runtime.LockOSThread() // a tracer is a thread
	defer runtime.UnlockOSThread()
	traced := *attr.Sys
	traced.Ptrace = true
	with := attr
	with.Sys = &traced
	pid, err = syscall.ForkExec(program, args, &with)
	if errors.Is(err, unix.EPERM) || errors.Is(err, unix.ENOSYS) { // a seccomp profile may forbid it: then without
		pid, err = syscall.ForkExec(program, args, &attr)
		if err == nil {
			score(pid)
		}
		return pid, err
	}
	if err != nil {
		return 0, err
	}
	// The program stops before its first instruction. One that was killed meanwhile is left to be reaped.
	if err := unix.Waitid(unix.P_PID, pid, nil, unix.WSTOPPED|unix.WEXITED|unix.WNOWAIT, nil); err == nil {
		score(pid)
		_ = unix.PtraceDetach(pid) // one that was killed has none to end
	}
	return pid, nil
}

// score fails where the engine has set more already, which does as well.
func score(pid int) {
	_ = os.WriteFile("/proc/"+strconv.Itoa(pid)+"/oom_score_adj", []byte(victimScore), 0)
}
