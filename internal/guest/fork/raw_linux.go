package fork

import (
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// The functions in this file run in a copy of a process with many threads, which has only one of them. They must not
// allocate, grow the stack, take locks or call the scheduler: they only make system calls.

//go:linkname beforeFork syscall.runtime_BeforeFork
func beforeFork()

//go:linkname afterFork syscall.runtime_AfterFork
func afterFork()

// stage is the step that failed in the command's process.
type stage int32

const (
	stageFork stage = iota + 1
	stageSession
	stageDescriptors
	stagePriority
	stageLimits
	stageDirectory
	stageCapabilities
	stageGroups
	stageIdentity
	stageExec
)

// report is a message of the supervisor or the command's process through its pipe, as native memory.
type report struct {
	what       int32 // reportPID or reportStatus; on the pipe for errors: a stage
	value      int32
	supervisor int32 // its pid
}

const (
	reportPID    = 1
	reportStatus = 2
	reportSize   = 12
)

// supervise creates the command's process, and later reports how the command ended. All signals have been blocked since
// the fork.
//
//go:nosplit
//go:norace
//go:nocheckptr
func supervise(p *plan) {
	// The starter ignores SIGCHLD. Here that would discard the status.
	_, _, _ = syscall.RawSyscall6(unix.SYS_RT_SIGACTION, uintptr(unix.SIGCHLD),
		uintptr(unsafe.Pointer(&p.action)), 0, 8, 0, 0)
	_, _, _ = syscall.RawSyscall(unix.SYS_PRCTL, unix.PR_SET_CHILD_SUBREAPER, 1, 0)
	_, _, _ = syscall.RawSyscall(unix.SYS_PRCTL, unix.PR_SET_NAME, p.name, 0)
	own, _, _ := syscall.RawSyscall(unix.SYS_GETPID, 0, 0, 0)
	p.report.supervisor = int32(own)
	// The keeper sends nothing here. If it has closed its end, it has given up this start.
	n, _, err := syscall.RawSyscall6(unix.SYS_RECVFROM, uintptr(p.status), uintptr(unsafe.Pointer(&p.wait)), 1,
		unix.MSG_PEEK|unix.MSG_DONTWAIT, 0, 0)
	if err == 0 && n == 0 {
		exit(1)
	}
	pid, errno := clone(p.cloning)
	if errno != 0 {
		giveUp(p, stageFork, syscall.Errno(errno))
	}
	if pid == 0 {
		become(p)
	}
	// The supervisor's copies would keep the command's pipes open.
	_, _, _ = syscall.RawSyscall(unix.SYS_DUP3, uintptr(p.status), 0, 0)
	closeFrom(1)
	for {
		got, _, err := syscall.RawSyscall6(unix.SYS_WAIT4, ^uintptr(0), uintptr(unsafe.Pointer(&p.wait)), 0, 0, 0, 0)
		if err == 0 && got == pid {
			_ = tell(0, p, reportStatus, p.wait)
			// Until the keeper closes its end, the command's descendants stay below this process.
			for {
				if _, _, err := syscall.RawSyscall(unix.SYS_READ, 0, uintptr(unsafe.Pointer(&p.report)), 1); err != unix.EINTR {
					exit(0)
				}
			}
		}
		if err != 0 && err != unix.EINTR {
			exit(1) // the keeper sees the end of the pipe without a status
		}
	}
}

// clone creates a process. If flags let the child share this process's memory, the child runs on the same stack, below
// the caller's frame. So the caller must not return in the child.
//
//go:noescape
func clone(flags uintptr) (pid, errno uintptr)

// maxDescriptors is more than the keeper opens; for kernels without close_range.
const maxDescriptors = 1 << 14

// sigSetMask is SIG_SETMASK.
const sigSetMask = 2

// become turns the supervisor's child into the command. It never returns. It reports both pids itself: if the child
// shares the supervisor's memory, the supervisor waits in clone until execve.
//
//go:nosplit
//go:norace
//go:nocheckptr
func become(p *plan) {
	own, _, _ := syscall.RawSyscall(unix.SYS_GETPID, 0, 0, 0)
	if err := tell(p.status, p, reportPID, int32(own)); err != 0 { // the keeper gave up the start just now
		exit(1)
	}
	// The starter has already reset the signal handlers.
	_, _, _ = syscall.RawSyscall6(unix.SYS_RT_SIGPROCMASK, sigSetMask, uintptr(unsafe.Pointer(&p.unblocked)), 0, 8, 0, 0)
	if _, _, err := syscall.RawSyscall(unix.SYS_SETSID, 0, 0, 0); err != 0 {
		giveUp(p, stageSession, err)
	}
	for to := 0; to < len(p.files); to++ {
		if _, _, err := syscall.RawSyscall(unix.SYS_DUP3, uintptr(p.files[to]), uintptr(to), 0); err != 0 {
			giveUp(p, stageDescriptors, err)
		}
	}
	if p.extra >= 0 {
		if _, _, err := syscall.RawSyscall(unix.SYS_DUP3, uintptr(p.extra), ExtraDescriptor, 0); err != 0 {
			giveUp(p, stageDescriptors, err)
		}
	}
	if _, _, err := syscall.RawSyscall(unix.SYS_SETPRIORITY, unix.PRIO_PROCESS, 0, uintptr(p.nice)); err != 0 {
		giveUp(p, stagePriority, err)
	}
	if p.processes.Max > 0 {
		_, _, err := syscall.RawSyscall6(unix.SYS_PRLIMIT64, 0, unix.RLIMIT_NPROC,
			uintptr(unsafe.Pointer(&p.processes)), 0, 0, 0)
		if err != 0 {
			giveUp(p, stageLimits, err)
		}
	}
	setScore(p)
	// The directory is entered with the sandbox's file-system user, which does not matter for signals. A
	// kernel without one, such as gVisor's, uses the effective user, which does not matter for signals
	// either.
	if _, _, err := syscall.RawSyscall(unix.SYS_SETFSGID, uintptr(p.gid), 0, 0); err == unix.ENOSYS {
		_, _, _ = syscall.RawSyscall(unix.SYS_SETRESGID, ^uintptr(0), uintptr(p.gid), ^uintptr(0))
		_, _, _ = syscall.RawSyscall(unix.SYS_SETRESUID, ^uintptr(0), uintptr(p.uid), ^uintptr(0))
	} else {
		_, _, _ = syscall.RawSyscall(unix.SYS_SETFSUID, uintptr(p.uid), 0, 0)
	}
	if _, _, err := syscall.RawSyscall(unix.SYS_FCHDIR, uintptr(p.dir), 0, 0); err != 0 {
		giveUp(p, stageDirectory, err)
	}
	for c := 0; c <= p.bounding; c++ {
		if _, _, err := syscall.RawSyscall(unix.SYS_PRCTL, unix.PR_CAPBSET_DROP, uintptr(c), 0); err != 0 {
			giveUp(p, stageCapabilities, err)
		}
	}
	if _, _, err := syscall.RawSyscall(unix.SYS_CAPSET, uintptr(unsafe.Pointer(&p.header)),
		uintptr(unsafe.Pointer(&p.few)), 0); err != 0 {
		giveUp(p, stageCapabilities, err)
	}
	takeIdentity(p)
}

// setScore makes the kernel kill the command before the keeper when memory runs out. A process that is not
// dumpable may not write its own score. If the write fails, the score is the keeper's.
//
//go:nosplit
//go:norace
//go:nocheckptr
func setScore(p *plan) {
	_, _, _ = syscall.RawSyscall(unix.SYS_PRCTL, unix.PR_SET_DUMPABLE, 1, 0)
	at := unix.AT_FDCWD
	fd, _, err := syscall.RawSyscall6(
		unix.SYS_OPENAT, uintptr(at), p.scorePath, unix.O_WRONLY|unix.O_CLOEXEC, 0, 0, 0)
	if err == 0 {
		_, _, _ = syscall.RawSyscall(unix.SYS_WRITE, fd, p.score, uintptr(p.scoreSize))
		_, _, _ = syscall.RawSyscall(unix.SYS_CLOSE, fd, 0, 0)
	}
	_, _, _ = syscall.RawSyscall(unix.SYS_PRCTL, unix.PR_SET_DUMPABLE, 0, 0)
}

// takeIdentity is the last step: after setresuid, sandbox code may signal this process.
//
//go:nosplit
//go:norace
//go:nocheckptr
func takeIdentity(p *plan) {
	if _, _, err := syscall.RawSyscall(unix.SYS_SETGROUPS, uintptr(p.groupCount), p.groups, 0); err != 0 {
		giveUp(p, stageGroups, err)
	}
	if _, _, err := syscall.RawSyscall(unix.SYS_SETRESGID, uintptr(p.gid), uintptr(p.gid), uintptr(p.gid)); err != 0 {
		giveUp(p, stageIdentity, err)
	}
	if _, _, err := syscall.RawSyscall(unix.SYS_SETRESUID, uintptr(p.uid), uintptr(p.uid), uintptr(p.uid)); err != 0 {
		giveUp(p, stageIdentity, err)
	}
	_, _, err := syscall.RawSyscall(
		unix.SYS_EXECVE, p.path, p.argv, p.env)
	giveUp(p, stageExec, err)
}

// giveUp reports what failed and ends the process.
//
//go:nosplit
//go:norace
//go:nocheckptr
func giveUp(p *plan, at stage, err syscall.Errno) {
	_ = tell(p.errors, p, int32(at), int32(err))
	exit(1)
}

// tell writes a report. A write of this size to a pipe is atomic.
//
//go:nosplit
//go:norace
//go:nocheckptr
func tell(fd int, p *plan, what, value int32) syscall.Errno {
	p.report.what, p.report.value = what, value
	for {
		if _, _, err := syscall.RawSyscall(unix.SYS_WRITE, uintptr(fd), uintptr(unsafe.Pointer(&p.report)),
			reportSize); err != unix.EINTR {
			return err
		}
	}
}

//go:nosplit
//go:norace
func exit(code uintptr) {
	for {
		_, _, _ = syscall.RawSyscall(unix.SYS_EXIT_GROUP, code, 0, 0)
	}
}
