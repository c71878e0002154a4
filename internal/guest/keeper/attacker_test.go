//go:build linux

package keeper_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// attackProgram is this test, built to run in a sandbox.
var attackProgram = sync.OnceValues(func() (string, error) {
	dir, err := os.MkdirTemp("", "attacker")
	if err != nil {
		return "", err
	}
	built = append(built, dir)
	path := filepath.Join(dir, "attacker")
	c := exec.Command("go", "test", "-c", "-o", path, ".")
	c.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := c.CombinedOutput(); err != nil {
		return "", fmt.Errorf("%w: %s", err, out)
	}
	return path, os.Chmod(dir, 0o755)
})

func attacker(t *testing.T) string {
	t.Helper()
	path, err := attackProgram()
	if err != nil {
		t.Fatal(err)
	}
	return path
}

// TestAttacker is the hostile program. It runs only in a sandbox.
func TestAttacker(t *testing.T) {
	switch os.Getenv("ATTACK") {
	case "guest":
		attackGuest(t)
	case "stop":
		stopAll()
	default:
		t.Skip("it runs inside of a sandbox")
	}
}

// attackRounds is the number of attempts of each kind on process 1 and on the broker.
const attackRounds = 200

// attackGuest tries each attack on process 1, the broker, the starter and the supervisors.
func attackGuest(t *testing.T) {
	attempts := map[string]int{}
	for range attackRounds {
		for _, pid := range guests() {
			for name, attack := range attacks {
				attempts[name]++
				if err := attack(pid); err == nil {
					t.Errorf("SUCCESS: %s on process %d", name, pid)
				}
			}
		}
	}
	for name := range attacks {
		if n := attempts[name]; n < 4*attackRounds {
			t.Errorf("%s: only %d attempts: process 1, a broker, a starter and a supervisor were expected", name, n)
		}
	}
	fmt.Println("attempts:", attempts)
}

// guests returns process 1, the broker and the supervisors, by the user in their status.
func guests() (found []int) {
	entries, _ := os.ReadDir("/proc")
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil {
			continue
		}
		b, _ := os.ReadFile("/proc/" + e.Name() + "/status")
		if strings.Contains(string(b), "Uid:\t65533") {
			found = append(found, pid)
		}
	}
	return found
}

func opens(name string, flags int) func(int) error {
	return func(pid int) error {
		f, err := os.OpenFile(fmt.Sprintf("/proc/%d/%s", pid, name), flags, 0)
		if err == nil {
			err = f.Close()
		}
		return err
	}
}

func call(number, b, c, d uintptr) func(int) error {
	return func(pid int) error {
		if _, _, errno := unix.Syscall6(number, uintptr(pid), b, c, d, 0, 0); errno != 0 {
			return errno
		}
		return nil
	}
}

var (
	idle    int32
	cpus    = [16]uint64{1}
	limited = unix.Rlimit{Cur: 0, Max: 0}
)

var attacks = map[string]func(pid int) error{
	"SIGSTOP":   func(pid int) error { return unix.Kill(pid, unix.SIGSTOP) },
	"SIGKILL":   func(pid int) error { return unix.Kill(pid, unix.SIGKILL) },
	"SIGTERM":   func(pid int) error { return unix.Kill(pid, unix.SIGTERM) },
	"signal 0":  func(pid int) error { return unix.Kill(pid, 0) },
	"tgkill":    func(pid int) error { return unix.Tgkill(pid, pid, unix.SIGSTOP) },
	"seize":     func(pid int) error { return unix.PtraceSeize(pid) },
	"attach":    func(pid int) error { return unix.PtraceAttach(pid) },
	"prlimit":   func(pid int) error { return unix.Prlimit(pid, unix.RLIMIT_CPU, &limited, nil) },
	"priority":  func(pid int) error { return unix.Setpriority(unix.PRIO_PROCESS, pid, 19) },
	"scheduler": call(unix.SYS_SCHED_SETSCHEDULER, 5, uintptr(unsafe.Pointer(&idle)), 0),
	"affinity":  call(unix.SYS_SCHED_SETAFFINITY, unsafe.Sizeof(cpus), uintptr(unsafe.Pointer(&cpus)), 0),
	// The I/O priority of a process.
	"I/O priority":        func(pid int) error { return call(unix.SYS_IOPRIO_SET, uintptr(pid), 3<<13, 0)(1) },
	"memory, to read":     opens("mem", os.O_RDONLY),
	"memory, to write":    opens("mem", os.O_RDWR),
	"environment":         opens("environ", os.O_RDONLY),
	"descriptors":         func(pid int) error { _, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", pid)); return err },
	"maps":                opens("maps", os.O_RDONLY),
	"OOM score":           opens("oom_score_adj", os.O_WRONLY),
	"dump filter":         opens("coredump_filter", os.O_WRONLY),
	"clear of references": opens("clear_refs", os.O_WRONLY),
	"timer slack": func(pid int) error {
		return os.WriteFile(fmt.Sprintf("/proc/%d/timerslack_ns", pid), []byte("1000000000"), 0)
	},
	"program": func(pid int) error { _, err := os.Readlink(fmt.Sprintf("/proc/%d/exe", pid)); return err },
	"root":    func(pid int) error { _, err := os.ReadDir(fmt.Sprintf("/proc/%d/root/", pid)); return err },
	"descriptor of a descriptor": func(pid int) error {
		at, err := unix.PidfdOpen(pid, 0)
		if err != nil {
			return err
		}
		defer unix.Close(at)
		fd, err := unix.PidfdGetfd(at, 0, 0)
		if err == nil {
			_ = unix.Close(fd)
		}
		return err
	},
}

// stopAll stops every process that it may, as soon as the process exists.
func stopAll() {
	self := os.Getpid()
	stopped := map[int]bool{}
	for limit := time.Now().Add(40 * time.Second); time.Now().Before(limit); {
		entries, err := os.ReadDir("/proc")
		if err != nil {
			continue
		}
		newest := self
		for _, e := range entries {
			pid, err := strconv.Atoi(e.Name())
			if err != nil || pid == self {
				continue
			}
			newest = max(newest, pid)
			if !stopped[pid] && unix.Kill(pid, unix.SIGSTOP) == nil {
				stopped[pid] = true
			}
		}
		for pid := newest; pid < newest+20; pid++ { // the next ones
			if pid != self {
				_ = unix.Kill(pid, unix.SIGSTOP)
			}
		}
	}
}
