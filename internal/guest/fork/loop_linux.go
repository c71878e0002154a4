package fork

import (
	"bytes"
	"fmt"
	"os"
	"strings"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// The functions in this file run in the starter's process. As in raw_linux.go, they only make system calls.

// most is the largest number of descriptors sent with a command.
const most = 7

// loop is the memory of the starter's process, prepared before the fork.
type loop struct {
	base   uintptr // address of the memory for a plan
	socket int

	unused  *spans
	name    *byte
	ignore  [4]uint64 // a struct sigaction with SIG_IGN
	reset   [4]uint64 // a struct sigaction with SIG_DFL
	old     [4]uint64
	head    uint64 // size of a plan in bytes
	vector  unix.Iovec
	message unix.Msghdr
	control [8]uint64 // a header and descriptors of four bytes
}

func newLoop(room []byte, socket int) *loop {
	l := &loop{base: uintptr(unsafe.Pointer(unsafe.SliceData(room))), socket: socket}
	l.name = unsafe.SliceData(append([]byte("starter"), 0))
	l.ignore[0] = 1 // SIG_IGN
	l.vector.Base = (*byte)(unsafe.Pointer(&l.head))
	l.vector.SetLen(int(unsafe.Sizeof(l.head)))
	l.message.Iov, l.message.Control = &l.vector, (*byte)(unsafe.Pointer(&l.control))
	l.message.SetIovlen(1)
	return l
}

// spans are memory ranges of this process. The first zero span ends the list.
type spans [64]struct{ from, to uintptr }

// anonymous returns the memory without a file: the heaps of runtime and program.
func anonymous() (*spans, error) {
	text, err := os.ReadFile("/proc/self/maps")
	if err != nil {
		return nil, fmt.Errorf("read the memory map of the command starter: %w", err)
	}
	all, n := new(spans), 0
	for line := range bytes.Lines(text) {
		var from, to, inode uintptr
		var mode, offset, device, name string
		// The name may be missing.
		if got, _ := fmt.Sscanf(string(line), "%x-%x %s %s %s %d %s", &from, &to, &mode, &offset, &device,
			&inode, &name); got < 6 {
			return nil, fmt.Errorf("read the memory map of the command starter: %q is not a valid line", line)
		}
		if mode == "rw-p" && inode == 0 && (name == "" || strings.HasPrefix(name, "[anon:")) && n < len(all)-1 {
			all[n].from, all[n].to = from, to
			n++
		}
	}
	return all, nil
}

// forkLoop forks. It returns only in the parent.
//
//go:noinline
//go:norace
//go:nocheckptr
func forkLoop(l *loop) (pid int, err syscall.Errno) {
	beforeFork()
	r, _, err := syscall.RawSyscall6(unix.SYS_CLONE, uintptr(unix.SIGCHLD), 0, 0, 0, 0, 0)
	if err == 0 && r == 0 {
		serve(l)
	}
	afterFork()
	return int(r), err
}

// serve forks a supervisor for each received command, until the keeper closes its end of the socket. All
// signals have been blocked since the fork.
//
//go:nosplit
//go:norace
//go:nocheckptr
func serve(l *loop) {
	resetSignals(l)
	// The kernel reaps supervisors.
	_, _, _ = syscall.RawSyscall6(unix.SYS_RT_SIGACTION, uintptr(unix.SIGCHLD),
		uintptr(unsafe.Pointer(&l.ignore)), 0, 8, 0, 0)
	_, _, _ = syscall.RawSyscall(unix.SYS_PRCTL, unix.PR_SET_NAME, uintptr(unsafe.Pointer(l.name)), 0)
	// Received descriptors get numbers above those that a command inherits.
	for fd := uintptr(0); fd <= ExtraDescriptor; fd++ {
		if fd != uintptr(l.socket) {
			_, _, _ = syscall.RawSyscall(unix.SYS_DUP3, uintptr(l.socket), fd, unix.O_CLOEXEC)
		}
	}
	closeFrom(ExtraDescriptor + 1)
	forget(l)
	for {
		p := receive(l)
		if p == nil {
			exit(0)
		}
		r, _, err := syscall.RawSyscall6(unix.SYS_CLONE, uintptr(unix.SIGCHLD), 0, 0, 0, 0, 0)
		if err == 0 && r == 0 {
			supervise(p)
		}
		if err != 0 {
			_ = tell(p.errors, p, int32(stageFork), int32(err))
		}
		closeFrom(ExtraDescriptor + 1)
		if l.head > littlePlan {
			_, _, _ = syscall.RawSyscall(unix.SYS_MADVISE, l.base, planRoom, unix.MADV_DONTNEED)
		}
	}
}

// signals is the highest signal plus one.
const signals = 65

// resetSignals restores the default action of signals that the keeper handles. Ignored signals stay ignored.
//
//go:nosplit
//go:norace
//go:nocheckptr
func resetSignals(l *loop) {
	for s := uintptr(1); s < signals; s++ {
		_, _, err := syscall.RawSyscall6(unix.SYS_RT_SIGACTION, s, 0, uintptr(unsafe.Pointer(&l.old)), 8, 0, 0)
		if err == 0 && l.old[0] != l.ignore[0] {
			_, _, _ = syscall.RawSyscall6(unix.SYS_RT_SIGACTION, s, uintptr(unsafe.Pointer(&l.reset)), 0, 8, 0, 0)
		}
	}
}

// piece is the amount of memory that is released or kept at once, in bytes.
const piece = 64 << 10

// forget releases the keeper's memory, except for what these functions use: their stack, l and the memory for plans.
// This also makes each fork cheaper.
//
//go:nosplit
//go:norace
//go:nocheckptr
func forget(l *loop) {
	stack, own := uintptr(unsafe.Pointer(&l)), uintptr(unsafe.Pointer(l))
	for i := 0; l.unused[i].to != 0; i++ {
		for at := l.unused[i].from; at < l.unused[i].to; at += piece {
			near := func(p uintptr) bool { return p+piece > at && p < at+2*piece }
			if near(stack) || near(own) || near(uintptr(unsafe.Pointer(l.unused))) || near(uintptr(unsafe.Pointer(l.name))) {
				continue
			}
			_, _, _ = syscall.RawSyscall(unix.SYS_MADVISE, at, min(piece, l.unused[i].to-at), unix.MADV_DONTNEED)
		}
	}
}

// littlePlan is the memory that the starter keeps for the next plan, in bytes.
const littlePlan = 64 << 10

// receive reads a plan and its descriptors. It returns nil once the keeper has closed its end.
//
//go:nosplit
//go:norace
//go:nocheckptr
func receive(l *loop) *plan {
	l.message.Controllen = uint64(unsafe.Sizeof(l.control))
	for {
		n, _, err := syscall.RawSyscall(unix.SYS_RECVMSG, 0, uintptr(unsafe.Pointer(&l.message)),
			unix.MSG_CMSG_CLOEXEC|unix.MSG_WAITALL)
		if err == unix.EINTR {
			continue
		}
		if err != 0 || n != unsafe.Sizeof(l.head) || l.head > planRoom || l.message.Flags&unix.MSG_CTRUNC != 0 {
			return nil
		}
		break
	}
	for done := uintptr(0); done < uintptr(l.head); {
		n, _, err := syscall.RawSyscall(unix.SYS_READ, 0, l.base+done, uintptr(l.head)-done)
		if err == unix.EINTR {
			continue
		}
		if err != 0 || n == 0 {
			return nil
		}
		done += n
	}
	p := *(**plan)(unsafe.Pointer(&l.base))
	fds := (*[most]int32)(unsafe.Pointer(&l.control[unix.SizeofCmsghdr/8]))
	p.errors, p.status, p.dir = int(fds[0]), int(fds[1]), int(fds[2])
	for i := 0; i < len(p.files); i++ {
		p.files[i] = int(fds[3+i])
	}
	if p.extra >= 0 {
		p.extra = int(fds[6])
	}
	return p
}

// closeFrom closes all descriptors from first on.
//
//go:nosplit
//go:norace
//go:nocheckptr
func closeFrom(first uintptr) {
	if _, _, err := syscall.RawSyscall(unix.SYS_CLOSE_RANGE, first, 1<<31-1, 0); err == 0 {
		return
	}
	for fd := first; fd < maxDescriptors; fd++ {
		_, _, _ = syscall.RawSyscall(unix.SYS_CLOSE, fd, 0, 0)
	}
}
