//go:build linux

package main

import (
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"
	"unsafe"
)

// System calls without a number in package syscall. The first four differ between architectures.
var sysVMRead, sysVMWrite, sysKcmp, sysSetAttr uintptr = 310, 311, 312, 314

const (
	sysPidfdSignal = 424
	sysPidfdOpen   = 434
	sysPidfdGetfd  = 438
)

func init() {
	if runtime.GOARCH == "arm64" {
		sysVMRead, sysVMWrite, sysKcmp, sysSetAttr = 270, 271, 272, 274
	}
}

// Files of a process that show or change its state.
var (
	readable = []string{"mem", "environ", "fd", "fdinfo", "map_files", "maps", "smaps", "smaps_rollup", "numa_maps", "pagemap", "auxv",
		"syscall", "stack", "personality", "io", "root", "cwd", "exe", "ns/mnt", "ns/pid", "ns/net", "timerslack_ns"}
	writable = []string{"mem", "oom_score_adj", "oom_adj", "coredump_filter", "clear_refs", "comm", "sched", "autogroup", "uid_map",
		"gid_map", "setgroups", "timerslack_ns", "attr/current"}
)

// reachOthers tries everything on process 1 and on every process of another user, until a file exists.
func reachOthers(args []string) {
	runtime.LockOSThread() // a tracer is a thread
	control := exec.Command("/proc/self/exe", "hold")
	if err := control.Start(); err != nil {
		fail(err.Error())
	}
	own := newReach()
	own.attack(process{pid: control.Process.Pid})
	_ = control.Process.Kill()
	_ = control.Wait() // it was killed
	for _, name := range own.names {
		fmt.Printf("control %s possible=%t\n", name, own.tallies[name].successes > 0)
	}
	r := newReach()
	fmt.Println("ready")
	rounds := 0
	least, _ := strconv.Atoi(args[1])
	for ; rounds < least || rounds%8 != 0 || !exists(args[0]); rounds++ {
		for _, pid := range processes() {
			if p, found := look(pid); found && pid != os.Getpid() && p.foreign() {
				r.attack(p)
			}
		}
	}
	fmt.Printf("rounds %d\n", rounds)
	for _, name := range r.names {
		r.tallies[name].print()
	}
}

// foreign reports whether a process does not belong to the sandbox's own code.
func (p process) foreign() bool { return p.pid == 1 || p.parent == 0 || !p.own() }

type reach struct {
	names   []string // in the order of their first attempts
	tallies map[string]*tally
	done    map[string]bool // a success on a process is not repeated
}

func newReach() *reach { return &reach{tallies: map[string]*tally{}, done: map[string]bool{}} }

// try counts an attempt. An error other than a refusal means that the process got access.
func (r *reach) try(name string, p process, attempt func() error) {
	key := strconv.Itoa(p.pid) + name
	if r.done[key] {
		return
	}
	t := r.tallies[name]
	if t == nil {
		t = &tally{name: name}
		r.tallies[name] = t
		r.names = append(r.names, name)
	}
	err := attempt()
	succeeded := !slices.ContainsFunc(refusals, func(e syscall.Errno) bool { return isErrno(err, e) })
	if succeeded && p.uids != [4]int{} {
		// A process proves nothing if it has ended, or has become the sandbox's own since the look.
		now, found := look(p.pid)
		succeeded = found && now.foreign()
	}
	r.done[key] = succeeded
	t.add(succeeded, fmt.Sprintf("process %d of parent %d and users %v: %v", p.pid, p.parent, p.uids, err))
}

var refusals = []syscall.Errno{syscall.EPERM, syscall.EACCES, syscall.ESRCH, syscall.ENOSYS, syscall.ENOENT}

func isErrno(err error, e syscall.Errno) bool {
	for {
		switch x := err.(type) {
		case syscall.Errno:
			return x == e
		case interface{ Unwrap() error }:
			err = x.Unwrap()
		default:
			return false
		}
	}
}

func errorOf(_ uintptr, errno syscall.Errno) error {
	if errno != 0 {
		return errno
	}
	return nil
}

// attack tries everything on one process, and on its threads if a call accepts a thread.
func (r *reach) attack(p process) {
	pid := uintptr(p.pid)
	for s := range uintptr(65) {
		r.try("kill", p, func() error { return errorOf(call(syscall.SYS_KILL, pid, s)) })
	}
	threads, err := os.ReadDir(procPath(p.pid, "task"))
	if err != nil {
		return // it has ended
	}
	for _, thread := range threads {
		tid := uintptr(number(thread.Name()))
		for s := range uintptr(65) {
			r.try("tgkill", p, func() error { return errorOf(call(syscall.SYS_TGKILL, pid, tid, s)) })
		}
		r.schedule(p, tid)
	}
	fd, errno := call(sysPidfdOpen, pid)
	if errno == 0 {
		for s := range uintptr(65) {
			r.try("pidfd_send_signal", p, func() error { return errorOf(call(sysPidfdSignal, fd, s)) })
		}
		r.try("pidfd_getfd", p, func() error { return closed(call(sysPidfdGetfd, fd, 0)) })
		_ = syscall.Close(int(fd))
	}
	for _, name := range readable {
		r.try("read-"+name, p, func() error { return read(procPath(p.pid, name)) })
	}
	for _, name := range writable {
		r.try("write-"+name, p, func() error { return write(procPath(p.pid, name)) })
	}
	r.memory(p)
}

// schedule tries to take processors away from a thread.
func (r *reach) schedule(p process, tid uintptr) {
	const idle, ioIdle = 5, 3 << 13
	none, mask := uint32(0), uint64(1)
	attr := [6]uint64{48 | idle<<32, 0, 0, 0, 0, 0} // struct sched_attr
	r.try("sched_setscheduler", p, func() error {
		return errorOf(call(syscall.SYS_SCHED_SETSCHEDULER, tid, idle, uintptr(unsafe.Pointer(&none))))
	})
	r.try("sched_setattr", p, func() error { return errorOf(call(sysSetAttr, tid, uintptr(unsafe.Pointer(&attr)), 0)) })
	r.try("sched_setaffinity", p, func() error {
		return errorOf(call(syscall.SYS_SCHED_SETAFFINITY, tid, 8, uintptr(unsafe.Pointer(&mask))))
	})
	r.try("setpriority", p, func() error { return syscall.Setpriority(syscall.PRIO_PROCESS, int(tid), 19) })
	r.try("ioprio_set", p, func() error { return errorOf(call(syscall.SYS_IOPRIO_SET, 1, tid, ioIdle)) })
	if uid := p.uids[0]; uid != os.Getuid() && uid != 0 {
		r.try("setpriority-user", p, func() error { return syscall.Setpriority(syscall.PRIO_USER, uid, 19) })
	}
}

// memory tries to read, change and trace a process, and to lower its limits.
func (r *reach) memory(p process) {
	pid := uintptr(p.pid)
	var word uint64
	local := [2]uintptr{uintptr(unsafe.Pointer(&word)), 8}
	remote := [2]uintptr{0x400000, 8} // where static programs begin; a wrong address is another error than a refusal
	for name, trap := range map[string]uintptr{"process_vm_readv": sysVMRead, "process_vm_writev": sysVMWrite} {
		r.try(name, p, func() error {
			return errorOf(call(trap, pid, uintptr(unsafe.Pointer(&local)), 1, uintptr(unsafe.Pointer(&remote)), 1, 0))
		})
	}
	r.try("kcmp", p, func() error { return errorOf(call(sysKcmp, pid, uintptr(os.Getpid()), 1, 0, 0)) })
	for resource, name := range map[uintptr]string{7: "prlimit-nofile", 6: "prlimit-nproc", 3: "prlimit-stack", 0: "prlimit-cpu"} {
		r.try(name, p, func() error {
			var limit [2]uint64 // the current value: whether it can be set is the only question
			if _, errno := call(syscall.SYS_PRLIMIT64, pid, resource, 0, uintptr(unsafe.Pointer(&limit))); errno != 0 {
				return errno
			}
			return errorOf(call(syscall.SYS_PRLIMIT64, pid, resource, uintptr(unsafe.Pointer(&limit)), 0))
		})
	}
	r.try("ptrace-seize", p, func() error { return traced(p.pid, ptraceSeize) })
	r.try("ptrace-attach", p, func() error { return traced(p.pid, ptraceAttach) })
}

func closed(fd uintptr, errno syscall.Errno) error {
	if errno != 0 {
		return errno
	}
	return syscall.Close(int(fd))
}

// read opens a file, a directory or the target of a link. It reads if opening alone proves nothing.
func read(name string) error {
	fd, err := syscall.Open(name, syscall.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return err
	}
	defer func() { _ = syscall.Close(fd) }()
	for _, end := range []string{"_ns", "maps", "maps_rollup", "environ", "auxv"} {
		if !strings.HasSuffix(name, end) {
			continue
		}
		// A process that is ending has no memory. Its file opens but is empty.
		n, err := syscall.Read(fd, make([]byte, 32))
		if err != nil {
			return err
		}
		if n == 0 {
			return syscall.ESRCH
		}
	}
	return nil
}

// write opens a file for writing. It writes if opening alone proves nothing.
func write(name string) error {
	fd, err := syscall.Open(name, syscall.O_WRONLY, 0)
	if err != nil {
		return err
	}
	defer func() { _ = syscall.Close(fd) }()
	switch {
	case name[len(name)-4:] == "/mem":
		return nil
	default:
		_, err = syscall.Write(fd, []byte("0"))
	}
	return err
}

// peek reads the memory and the variables of processes of its own user, until a file exists.
func peek(args []string) {
	environ, memory := tally{name: "environ"}, tally{name: "mem"}
	fmt.Println("ready")
	for ; !exists(args[0]); time.Sleep(time.Millisecond) {
		for _, pid := range processes() {
			if p, found := look(pid); !found || pid == os.Getpid() || p.foreign() {
				continue
			}
			_, err := os.ReadFile(procPath(pid, "environ"))
			environ.add(err == nil, strconv.Itoa(pid))
			memory.add(read(procPath(pid, "mem")) == nil, strconv.Itoa(pid))
		}
	}
	environ.print()
	memory.print()
}
