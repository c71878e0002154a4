//go:build linux

package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"syscall"
	"time"
	"unsafe"
)

// takers take one more of a resource with each call, until there is none. They keep what they took.
var takers = map[string]func() error{
	"pids":              func() error { return errorOf(forkIdle()) },
	"inotify-instances": func() error { return errorOf(call(syscall.SYS_INOTIFY_INIT1, 0)) },
	"inotify-watches":   takeWatch(),
	"timers":            takeTimer,
	"signals":           takeSignal,
	"aio":               takeAIO,
	"files":             func() error { _, err := syscall.Open("/dev/null", syscall.O_RDONLY, 0); return err },
	"pipes":             func() error { return syscall.Pipe2(make([]int, 2), 0) },
	"unix-sockets":      takeInFlight,
	"message-queues":    takeQueue,
	"disk":              takeDisk,
	"memory":            takeMemory,
	"cpu":               takeCPU(),
}

// delay is how long an attack waits after it has reported that it is ready, so that the test can read the report.
const delay = 500 * time.Millisecond

// exhaust takes all of one resource, prints the amount, and keeps it until it is ended.
func exhaust(args []string) {
	runtime.LockOSThread()
	take := takers[args[0]]
	if take == nil {
		fail("there is nothing called " + args[0])
	}
	fmt.Println("ready")
	time.Sleep(delay)
	n := 0
	err := take()
	for ; err == nil && n < 1<<20; n++ {
		err = take()
	}
	fmt.Printf("full %d %v\n", n, err)
	for { // without the Go runtime, which may lack the resource
		_, _ = call(syscall.SYS_PPOLL)
	}
}

// takeWatch returns a function that adds one watch for one inode in one instance. The limit covers both together.
func takeWatch() func() error {
	var names []string
	var instance uintptr
	next := 0
	return func() error {
		if names == nil {
			_ = filepath.WalkDir("/", func(name string, _ fs.DirEntry, err error) error {
				if err == nil {
					names = append(names, name)
				}
				if len(names) == 4000 {
					return fs.SkipAll
				}
				return nil
			})
		}
		for {
			if next%len(names) == 0 {
				fd, errno := call(syscall.SYS_INOTIFY_INIT1, 0)
				if errno != 0 {
					return errno
				}
				instance = fd
			}
			next++
			_, err := syscall.InotifyAddWatch(int(instance), names[next%len(names)], syscall.IN_DELETE)
			if err == nil || errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.ENOMEM) {
				return err
			}
		}
	}
}

func takeTimer() error {
	var id int32
	return errorOf(call(syscall.SYS_TIMER_CREATE, 1, 0, uintptr(unsafe.Pointer(&id))))
}

// queued is a signal that no code here receives.
const queued = 40

// takeSignal sends a signal to this thread, which blocks it.
func takeSignal() error {
	set := uint64(1) << (queued - 1)
	const block, fromQueue = 0, -1
	if _, errno := call(syscall.SYS_RT_SIGPROCMASK, block, uintptr(unsafe.Pointer(&set)), 0, 8); errno != 0 {
		return errno
	}
	var info [32]int32 // siginfo_t
	info[0], info[2] = queued, fromQueue
	pid, tid := uintptr(os.Getpid()), uintptr(syscall.Gettid())
	return errorOf(call(syscall.SYS_RT_TGSIGQUEUEINFO, pid, tid, queued, uintptr(unsafe.Pointer(&info))))
}

func takeAIO() error {
	var id uintptr
	return errorOf(call(syscall.SYS_IO_SETUP, 1024, uintptr(unsafe.Pointer(&id))))
}

// inFlight is the kernel's limit of descriptors in one message.
const inFlight = 253

// takeInFlight sends descriptors to a socket without a reader.
func takeInFlight() error {
	pair, err := syscall.Socketpair(syscall.AF_UNIX, syscall.SOCK_STREAM, 0)
	if err != nil {
		return err
	}
	fds := slices.Repeat([]int{0}, inFlight)
	return syscall.Sendmsg(pair[0], []byte("x"), syscall.UnixRights(fds...), nil, syscall.MSG_DONTWAIT)
}

var queues int

// takeQueue creates a message queue and removes its name.
func takeQueue() error {
	queues++
	name := append([]byte("q"+strconv.Itoa(os.Getpid())+"-"+strconv.Itoa(queues)), 0)
	attr := [8]int64{0, 10, 8192} // struct mq_attr: flags, messages, bytes of each
	const flags = syscall.O_RDWR | syscall.O_CREAT | syscall.O_EXCL
	_, errno := call(syscall.SYS_MQ_OPEN, uintptr(unsafe.Pointer(&name[0])), flags, 0o600, uintptr(unsafe.Pointer(&attr)))
	if errno == 0 {
		_, errno = call(syscall.SYS_MQ_UNLINK, uintptr(unsafe.Pointer(&name[0])))
	}
	return errorOf(0, errno)
}

func takeDisk() error {
	f, err := os.OpenFile("/workspace/fill", os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return err
	}
	_, err = f.Write(make([]byte, 1<<20))
	return errors.Join(err, f.Close())
}

func takeMemory() error {
	_, err := syscall.Mmap(-1, 0, hogged, syscall.PROT_READ|syscall.PROT_WRITE, syscall.MAP_PRIVATE|syscall.MAP_ANON|syscall.MAP_POPULATE)
	return err
}

func takeCPU() func() error {
	n := 0
	return func() error {
		if n++; n > 16 {
			return syscall.EAGAIN
		}
		return errorOf(0, forkSpinner(nowhere, nowhere))
	}
}

// use takes one of each resource, and prints the results.
func use([]string) {
	runtime.LockOSThread()
	say := func(kind string, err error) { fmt.Printf("use %s: %v\n", kind, err) }
	for _, kind := range []string{"inotify-instances", "timers", "signals", "aio", "files", "unix-sockets", "message-queues", "memory"} {
		say(kind, takers[kind]())
	}
	say("inotify-watches", useWatch())
	say("pipes", usePipe())
	say("disk", os.WriteFile("/workspace/used", make([]byte, 1<<16), 0o600))
	pid, errno := forkIdle()
	if errno == 0 {
		_ = syscall.Kill(int(pid), syscall.SIGKILL)
		_, _ = syscall.Wait4(int(pid), nil, 0, nil)
	}
	say("pids", errorOf(pid, errno))
}

func useWatch() error {
	fd, errno := call(syscall.SYS_INOTIFY_INIT1, 0)
	if errno != 0 {
		return errno
	}
	_, err := syscall.InotifyAddWatch(int(fd), "/workspace", syscall.IN_DELETE)
	return err
}

// usePipe creates a pipe, which must have the usual size. It is smaller if the user has too many pipes.
func usePipe() error {
	const getSize, usual = 1032, 65536
	p := make([]int, 2)
	if err := syscall.Pipe2(p, 0); err != nil {
		return err
	}
	size, errno := call(syscall.SYS_FCNTL, uintptr(p[0]), getSize)
	if errno == 0 && size != usual {
		return fmt.Errorf("it takes %d bytes", size)
	}
	return errorOf(size, errno)
}
