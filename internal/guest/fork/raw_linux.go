package fork

import (
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// The functions of this file run in a copy of a process with many threads, in which one thread is left. They must not
// allocate, grow the stack, take locks or call the scheduler: they make system calls only.

//go:linkname beforeFork syscall.runtime_BeforeFork
func beforeFork()

//go:linkname afterFork syscall.runtime_AfterFork
func afterFork()

//go:linkname afterForkInChild syscall.runtime_AfterForkInChild
func afterForkInChild()

// stage is what the command's process did when it failed.
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

// report is what the supervisor and the command's process write into their pipes, as native memory.
type report struct {
	what  int32 // of the supervisor: reportPID or reportStatus; of the command's process: a stage
	value int32
}

const (
	reportPID    = 1
	reportStatus = 2
	reportSize   = 8
)

// plan is all that a fork needs, prepared before it. Descriptors are above those that a command inherits.
type plan struct {
	path       *byte
	argv, env  **byte
	dir        int
	files      [3]int
	extra      int // -1: none
	errors     int // closes on exec
	status     int
	uid, gid   int
	groups     *uint32
	groupCount int
	nice       int
	processes  *unix.Rlimit // nil: as many as the keeper
	score      *byte
	scoreSize  int
	scorePath  *byte
	name       *byte
	bounding   int // the last capability that the kernel knows

	// What follows is memory for the child.
	report report
	wait   int32
	action [4]uint64 // a zero struct sigaction is SIG_DFL
	header unix.CapUserHeader
	few    [2]unix.CapUserData
}

// forkSupervisor forks. Only the parent returns.
//
//go:noinline
//go:norace
//go:nocheckptr
func forkSupervisor(p *plan) (pid int, err syscall.Errno) {
	beforeFork()
	r, _, err := syscall.RawSyscall6(unix.SYS_CLONE, uintptr(unix.SIGCHLD), 0, 0, 0, 0, 0)
	if err == 0 && r == 0 {
		supervise(p)
	}
	afterFork()
	return int(r), err
}

// supervise forks the command's process, reports its pid and then how it ended. All signals are blocked since the fork.
//
//go:nosplit
//go:norace
//go:nocheckptr
func supervise(p *plan) {
	// Process 1 ignores SIGCHLD; here that would discard the status.
	_, _, _ = syscall.RawSyscall6(unix.SYS_RT_SIGACTION, uintptr(unix.SIGCHLD), uintptr(unsafe.Pointer(&p.action)), 0, 8, 0, 0)
	_, _, _ = syscall.RawSyscall(unix.SYS_PRCTL, unix.PR_SET_CHILD_SUBREAPER, 1, 0)
	_, _, _ = syscall.RawSyscall(unix.SYS_PRCTL, unix.PR_SET_NAME, uintptr(unsafe.Pointer(p.name)), 0)
	pid, _, err := syscall.RawSyscall6(unix.SYS_CLONE, uintptr(unix.SIGCHLD), 0, 0, 0, 0, 0)
	if err != 0 {
		giveUp(p, stageFork, err)
	}
	if pid == 0 {
		become(p)
	}
	tell(p.status, p, reportPID, int32(pid))
	// The copies of the keeper's descriptors would keep other commands' pipes open.
	if p.status > 0 {
		_, _, _ = syscall.RawSyscall(unix.SYS_DUP3, uintptr(p.status), 0, 0)
	}
	if _, _, err := syscall.RawSyscall(unix.SYS_CLOSE_RANGE, 1, 1<<31-1, 0); err != 0 {
		for fd := uintptr(1); fd < maxDescriptors; fd++ {
			_, _, _ = syscall.RawSyscall(unix.SYS_CLOSE, fd, 0, 0)
		}
	}
	for {
		got, _, err := syscall.RawSyscall6(unix.SYS_WAIT4, ^uintptr(0), uintptr(unsafe.Pointer(&p.wait)), 0, 0, 0, 0)
		if err == 0 && got == pid {
			tell(0, p, reportStatus, p.wait)
			// Until the keeper closes its end, what the command started stays below.
			for {
				if _, _, err := syscall.RawSyscall(unix.SYS_READ, 0, uintptr(unsafe.Pointer(&p.report)), 1); err != unix.EINTR {
					exit(0)
				}
			}
		}
		if err != 0 && err != unix.EINTR {
			exit(1) // the keeper reads the end of the pipe without a status
		}
	}
}

// maxDescriptors is more than the keeper opens, for kernels before close_range.
const maxDescriptors = 1 << 14

// become turns the child of the supervisor into the command. It returns never.
//
//go:nosplit
//go:norace
//go:nocheckptr
func become(p *plan) {
	afterForkInChild()
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
	if p.processes != nil {
		_, _, err := syscall.RawSyscall6(unix.SYS_PRLIMIT64, 0, unix.RLIMIT_NPROC, uintptr(unsafe.Pointer(p.processes)), 0, 0, 0)
		if err != 0 {
			giveUp(p, stageLimits, err)
		}
	}
	setScore(p)
	// The directory is entered as the sandbox's user, at which signals do not look. A kernel without such a user, as gVisor's,
	// takes the effective one, at which they do not look either.
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
	if _, _, err := syscall.RawSyscall(unix.SYS_CAPSET, uintptr(unsafe.Pointer(&p.header)), uintptr(unsafe.Pointer(&p.few)), 0); err != 0 {
		giveUp(p, stageCapabilities, err)
	}
	takeIdentity(p)
}

// setScore makes the kernel choose the command before the keeper when memory runs out. A process that is not dumpable
// may not write its own score. Where it fails, the score is the keeper's.
//
//go:nosplit
//go:norace
//go:nocheckptr
func setScore(p *plan) {
	_, _, _ = syscall.RawSyscall(unix.SYS_PRCTL, unix.PR_SET_DUMPABLE, 1, 0)
	at := unix.AT_FDCWD
	fd, _, err := syscall.RawSyscall6(
		unix.SYS_OPENAT, uintptr(at), uintptr(unsafe.Pointer(p.scorePath)), unix.O_WRONLY|unix.O_CLOEXEC, 0, 0, 0)
	if err == 0 {
		_, _, _ = syscall.RawSyscall(unix.SYS_WRITE, fd, uintptr(unsafe.Pointer(p.score)), uintptr(p.scoreSize))
		_, _, _ = syscall.RawSyscall(unix.SYS_CLOSE, fd, 0, 0)
	}
	_, _, _ = syscall.RawSyscall(unix.SYS_PRCTL, unix.PR_SET_DUMPABLE, 0, 0)
}

// takeIdentity is the last step: from setresuid on, sandbox code may signal this process.
//
//go:nosplit
//go:norace
//go:nocheckptr
func takeIdentity(p *plan) {
	if _, _, err := syscall.RawSyscall(unix.SYS_SETGROUPS, uintptr(p.groupCount), uintptr(unsafe.Pointer(p.groups)), 0); err != 0 {
		giveUp(p, stageGroups, err)
	}
	if _, _, err := syscall.RawSyscall(unix.SYS_SETRESGID, uintptr(p.gid), uintptr(p.gid), uintptr(p.gid)); err != 0 {
		giveUp(p, stageIdentity, err)
	}
	if _, _, err := syscall.RawSyscall(unix.SYS_SETRESUID, uintptr(p.uid), uintptr(p.uid), uintptr(p.uid)); err != 0 {
		giveUp(p, stageIdentity, err)
	}
	_, _, err := syscall.RawSyscall(
		unix.SYS_EXECVE, uintptr(unsafe.Pointer(p.path)), uintptr(unsafe.Pointer(p.argv)), uintptr(unsafe.Pointer(p.env)))
	giveUp(p, stageExec, err)
}

// giveUp reports what failed, and ends the process.
//
//go:nosplit
//go:norace
//go:nocheckptr
func giveUp(p *plan, at stage, err syscall.Errno) {
	tell(p.errors, p, int32(at), int32(err))
	exit(1)
}

// tell writes a report. A pipe takes one whole.
//
//go:nosplit
//go:norace
//go:nocheckptr
func tell(fd int, p *plan, what, value int32) {
	p.report.what, p.report.value = what, value
	for {
		if _, _, err := syscall.RawSyscall(unix.SYS_WRITE, uintptr(fd), uintptr(unsafe.Pointer(&p.report)), reportSize); err != unix.EINTR {
			return
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
