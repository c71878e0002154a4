//go:build linux

// Command exerciser uses the kernel as programs do, and prints each result.
package main

import (
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"sync"
	"syscall"
	"time"
	"unsafe"
)

// System calls without a number in package syscall: those with the same number on amd64 and arm64, and the others.
const (
	sysLandlock  = 444
	sysPidfdOpen = 434
	sysOpenat2   = 437
)

var numbers = map[string]map[string]uintptr{
	"amd64": {"memfd_create": 319, "getrandom": 318, "statx": 332, "eventfd2": 290, "timerfd_create": 283, "timerfd_settime": 286,
		"signalfd4": 289, "membarrier": 324, "copy_file_range": 326, "rseq": 334, "mq_open": 240, "timer_create": 222, "setfsuid": 122},
	"arm64": {"memfd_create": 279, "getrandom": 278, "statx": 291, "eventfd2": 19, "timerfd_create": 85, "timerfd_settime": 86,
		"signalfd4": 74, "membarrier": 283, "copy_file_range": 285, "rseq": 293, "mq_open": 180, "timer_create": 107, "setfsuid": 151},
}

func text(s string) uintptr {
	b := append([]byte(s), 0)
	kept = append(kept, b)
	return uintptr(unsafe.Pointer(&b[0]))
}

var kept [][]byte // memory whose address the kernel got

// call makes a system call by name or number, and returns its result.
func call(which any, args ...uintptr) (uintptr, error) {
	number, ok := which.(int)
	if name, named := which.(string); named {
		n := uintptr(0)
		n, ok = numbers[runtime.GOARCH][name]
		number = int(n)
	}
	if !ok {
		return 0, fmt.Errorf("%v has no number here", which)
	}
	args = append(args, make([]uintptr, 6-len(args))...)
	result, _, errno := syscall.Syscall6(uintptr(number), args[0], args[1], args[2], args[3], args[4], args[5])
	if errno != 0 {
		return 0, errno
	}
	return result, nil
}

// calls returns a group of one call.
func calls(which any, args ...uintptr) func() error {
	return func() error { _, err := call(which, args...); return err }
}

func main() {
	if err := os.Chdir("/workspace"); err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
	for _, group := range []struct {
		name string
		use  func() error
	}{
		{"threads", threads}, {"programs and pipes", programs}, {"epoll", epoll}, {"inotify", inotify}, {"timers", timers},
		{"unix sockets", unixSockets}, {"TCP over loopback", func() error { return tcp("tcp4", "127.0.0.1:0") }},
		{"netlink route", interfaces}, {"files", files}, {"sendfile", sendfile}, {"signals", signals},
		{"memory", memory}, {"file of memory", calls("memfd_create", text("x"), 1)}, {"eventfd", calls("eventfd2", 0, 0)},
		{"signalfd", calls("signalfd4", ^uintptr(0), text("        "), 8, 0)},
		{"randomness", calls("getrandom", text("        "), 8, 0)},
		{"statx", calls("statx", ^uintptr(99), text("."), 0, 0x7ff, text(string(make([]byte, 256))))},
		{"membarrier", calls("membarrier", 0, 0, 0)}, {"openat2", calls(sysOpenat2, ^uintptr(99), text("."), text(string(make([]byte, 24))), 24)},
		{"landlock", landlock}, {"pidfd", calls(sysPidfdOpen, uintptr(os.Getpid()), 0)},
		{"IPv6 sockets", calls(syscall.SYS_SOCKET, syscall.AF_INET6, syscall.SOCK_STREAM, 0)}, {"rseq", rseq},
		{"the identity that it has", identity}, {"which personality", calls(syscall.SYS_PERSONALITY, 0xffffffff)},
		{"priority of its own", calls(syscall.SYS_SETPRIORITY, 0, 0, 15)}, {"process group", processGroup},
		{"extended attributes", attributes}, {"name of a thread", calls(syscall.SYS_PRCTL, 15, text("exerciser"))},
	} {
		if err := group.use(); err != nil {
			fmt.Printf("%s: %v\n", group.name, err)
			continue
		}
		fmt.Printf("%s: done\n", group.name)
	}
}

func threads() error {
	var all sync.WaitGroup
	for range 16 {
		all.Go(func() { runtime.LockOSThread(); time.Sleep(time.Millisecond) }) // each goroutine ends its thread
	}
	all.Wait()
	return nil
}

func programs() error {
	out, err := exec.Command("/bin/sh", "-c", "echo one | cat; (echo two)").Output()
	if err == nil && string(out) != "one\ntwo\n" {
		return fmt.Errorf("they say %q", out)
	}
	return err
}

func epoll() error {
	fd, err := syscall.EpollCreate1(0)
	if err != nil {
		return err
	}
	defer syscall.Close(fd)
	var pipe [2]int
	if err := syscall.Pipe(pipe[:]); err != nil {
		return err
	}
	if err := syscall.EpollCtl(fd, syscall.EPOLL_CTL_ADD, pipe[0], &syscall.EpollEvent{Events: syscall.EPOLLIN}); err != nil {
		return err
	}
	if _, err := syscall.Write(pipe[1], []byte("x")); err != nil {
		return err
	}
	n, err := syscall.EpollWait(fd, make([]syscall.EpollEvent, 1), 1000)
	if err == nil && n != 1 {
		return fmt.Errorf("%d events", n)
	}
	return err
}

func inotify() error {
	fd, err := syscall.InotifyInit1(0)
	if err != nil {
		return err
	}
	defer syscall.Close(fd)
	_, err = syscall.InotifyAddWatch(fd, "/workspace", syscall.IN_CREATE)
	return err
}

func timers() error {
	fd, err := call("timerfd_create", 1, 0)
	if err != nil {
		return err
	}
	if _, err = call("timerfd_settime", fd, 0, uintptr(unsafe.Pointer(&[4]int64{3: 1}))); err != nil {
		return err
	}
	if _, err = syscall.Read(int(fd), make([]byte, 8)); err != nil {
		return err
	}
	var id int32
	_, err = call("timer_create", 1, 0, uintptr(unsafe.Pointer(&id)))
	return err
}

func unixSockets() error {
	pair, err := syscall.Socketpair(syscall.AF_UNIX, syscall.SOCK_STREAM, 0)
	if err != nil {
		return err
	}
	return syscall.Sendmsg(pair[0], []byte("x"), syscall.UnixRights(pair[0]), nil, 0)
}

func tcp(network, address string) error {
	l, err := net.Listen(network, address)
	if err != nil {
		return err
	}
	defer l.Close()
	out, err := net.Dial(network, l.Addr().String())
	if err != nil {
		return err
	}
	defer out.Close()
	in, err := l.Accept()
	if err != nil {
		return err
	}
	return in.Close()
}

func interfaces() error {
	list, err := net.Interfaces()
	if err == nil && len(list) == 0 {
		return fmt.Errorf("there are none")
	}
	return err
}

func files() error {
	dir, err := os.MkdirTemp(".", "files")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	a, b := filepath.Join(dir, "a"), filepath.Join(dir, "b")
	steps := []func() error{
		func() error { return os.WriteFile(a, []byte("text"), 0o600) }, func() error { return os.Link(a, b) },
		func() error { return os.Symlink("a", filepath.Join(dir, "c")) }, func() error { return os.Rename(b, a+"x") },
		func() error { return os.Chmod(a, 0o755) }, func() error { return os.Chown(a, os.Getuid(), os.Getgid()) },
		func() error { return os.Truncate(a, 2) }, func() error { return os.Chtimes(a, time.Now(), time.Now()) },
		func() error { return syscall.Mkfifo(filepath.Join(dir, "fifo"), 0o600) },
		func() error { return syscall.Mkdir(filepath.Join(dir, "d"), 0o700) },
	}
	for i, step := range steps {
		if err := step(); err != nil {
			return fmt.Errorf("step %d: %w", i, err)
		}
	}
	f, err := os.OpenFile(a, os.O_RDWR, 0)
	if err != nil {
		return err
	}
	defer f.Close()
	if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX); err != nil {
		return err
	}
	return f.Sync()
}

func sendfile() error {
	from, err := os.Open("/proc/self/exe")
	if err != nil {
		return err
	}
	defer from.Close()
	to, err := os.CreateTemp(".", "copy")
	if err != nil {
		return err
	}
	defer os.Remove(to.Name())
	defer to.Close()
	if _, err := call("copy_file_range", from.Fd(), 0, to.Fd(), 0, 4096, 0); err != nil && err != syscall.EXDEV {
		return err
	}
	_, err = syscall.Sendfile(int(to.Fd()), int(from.Fd()), nil, 4096)
	return err
}

func signals() error {
	command := exec.Command("/bin/sleep", "60")
	if err := command.Start(); err != nil {
		return err
	}
	if err := command.Process.Signal(syscall.SIGTERM); err != nil {
		return err
	}
	if err := command.Wait(); err == nil {
		return fmt.Errorf("the program did not mind")
	}
	return nil
}

func memory() error {
	m, err := syscall.Mmap(-1, 0, 1<<16, syscall.PROT_READ|syscall.PROT_WRITE, syscall.MAP_ANON|syscall.MAP_PRIVATE)
	if err != nil {
		return err
	}
	if err := syscall.Mprotect(m, syscall.PROT_READ|syscall.PROT_EXEC); err != nil {
		return err
	}
	return syscall.Munmap(m)
}

// landlock asks for the kernel's version of landlock. A kernel without landlock says so, as it does without a filter.
func landlock() error {
	_, err := call(sysLandlock, 0, 0, 1)
	if err == syscall.EOPNOTSUPP || err == syscall.ENOSYS {
		return nil
	}
	return err
}

// rseq makes a call that a kernel refuses because of its arguments, which a filter does not see.
func rseq() error {
	if _, err := call("rseq", 0, 1, 0, 0); err != syscall.EINVAL {
		return fmt.Errorf("it answers %v", err)
	}
	return nil
}

// identity makes the calls of programs that change users. Capabilities decide about them, not the filter.
func identity() error {
	if err := syscall.Setuid(os.Getuid()); err != nil {
		return err
	}
	if err := syscall.Setresgid(os.Getgid(), os.Getgid(), os.Getgid()); err != nil {
		return err
	}
	if _, err := call("setfsuid", uintptr(os.Getuid())); err != nil {
		return err
	}
	return syscall.Kill(os.Getpid(), 0)
}

func processGroup() error {
	command := exec.Command("/bin/true")
	command.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	return command.Run()
}

func attributes() error {
	if err := syscall.Setxattr("/workspace", "user.exerciser", []byte("x"), 0); err != nil && err != syscall.ENOTSUP {
		return err
	}
	return nil
}
