//go:build linux

package main

import (
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strconv"
	"syscall"
	"time"
	"unsafe"
)

// The files that verifiers read.
const (
	answerFile = "/workspace/answer"
	leasedFile = "/workspace/leased"
	tallyDir   = "/workspace/tallies"
)

// forgers are the ways to run next to a verifier.
var forgers = map[string]func(){
	"writes": func() {},
	"timer":  continueByTimer,
	"notify": continueByNotice,
	"lease":  continueByLease,
	"pair":   continueEachOther,
	"forks":  forkOn,
	"leader": endLeader,
	"vfork":  waitForChild,
}

func init() {
	if len(os.Args) > 1 && os.Args[1] == "forger" {
		runtime.LockOSThread() // main has the first thread
	}
}

// forge keeps forgers of changing kinds running until a file exists. It obeys SIGSTOP itself, so only a forger that
// does not can run next to a verifier.
func forge(args []string) {
	if err := os.Mkdir(tallyDir, 0o755); err != nil {
		fail(err.Error())
	}
	write := func(name, text string, mode os.FileMode) {
		if err := os.WriteFile(name, []byte(text), mode); err != nil {
			fail(err.Error())
		}
	}
	write(answerFile, "0", 0o644)
	write(leasedFile, "", 0o644)
	if err := syscall.Mkfifo("/workspace/fifo", 0o644); err != nil {
		fail(err.Error())
	}
	for _, name := range []string{"false", "sh", "cat"} {
		write("/workspace/"+name, "#!/bin/sh\nexit 0\n", 0o755)
	}
	for _, name := range []string{".profile", ".bashrc", ".shrc", ".bash_profile"} {
		write("/workspace/"+name, "exit 0\n", 0o644)
	}
	kinds := make([]string, 0, len(forgers))
	for kind := range forgers {
		kinds = append(kinds, kind)
	}
	slices.Sort(kinds)
	fmt.Println("ready")
	for round := 0; !exists(args[0]); round++ {
		kind := kinds[round%len(kinds)]
		c := exec.Command("/proc/self/exe", "forger", kind)
		c.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
		if err := c.Start(); err != nil {
			time.Sleep(10 * time.Millisecond)
			continue
		}
		for range 15 {
			time.Sleep(10 * time.Millisecond)
		}
		_ = syscall.Kill(-c.Process.Pid, syscall.SIGKILL)
		_ = c.Wait() // it was killed
	}
	printTallies()
}

// printTallies adds up the forgers' tallies.
func printTallies() {
	sums := map[string]*tally{}
	entries, err := os.ReadDir(tallyDir)
	if err != nil {
		fail(err.Error())
	}
	for _, e := range entries {
		text, _ := os.ReadFile(tallyDir + "/" + e.Name()) // a forger that was killed during the write has none
		var name, first string
		var attempts, successes int
		if _, err := fmt.Sscanf(string(text), "%s %d %d %q", &name, &attempts, &successes, &first); err != nil {
			continue
		}
		if sums[name] == nil {
			sums[name] = &tally{name: name}
		}
		s := sums[name]
		s.attempts += attempts
		s.successes += successes
		if first != "" {
			s.first = first
		}
	}
	for _, s := range sums {
		s.print()
	}
}

// forger attacks verifiers. It continues after a SIGSTOP.
func forger(args []string) {
	if err := syscall.Mkfifo("/workspace/fifo", 0o644); err != nil && err != syscall.EEXIST {
		fail(err.Error())
	}
	go attackVerifiers(args[0])
	forgers[args[0]]()
	select {}
}

// attackVerifiers changes the input of verifiers. It also attacks every process of a user other than its own and that
// of process 1.
func attackVerifiers(kind string) {
	runtime.LockOSThread()
	t := tally{name: "forger-" + kind}
	keeper, _ := look(1)
	for n := 0; ; n++ {
		if f, err := os.OpenFile(answerFile, os.O_WRONLY, 0); err == nil {
			_, _ = fmt.Fprintf(f, "%020d", n) // one lost write does not matter
			_ = f.Close()
		}
		from := latest() - 64
		for pid := max(2, from); pid < from+64+ahead; pid++ {
			p, found := look(pid)
			if !found || p.own() || p.uids[0] == keeper.uids[0] || exists("/proc/self/task/"+strconv.Itoa(pid)) {
				continue
			}
			for what, err := range attemptsOn(pid) {
				t.add(err == nil, fmt.Sprint(what, " of process ", pid))
			}
		}
		if n%8 == 0 {
			text := fmt.Sprintf("%s %d %d %q", t.name, t.attempts, t.successes, t.first)
			_ = os.WriteFile(tallyDir+"/"+strconv.Itoa(os.Getpid()), []byte(text), 0o644) // the next tally replaces a failed one
		}
	}
}

// attemptsOn attacks a process, and returns the error of each attempt.
func attemptsOn(pid int) map[string]error {
	errs := map[string]error{
		"seize": traced(pid, ptraceSeize), "attach": traced(pid, ptraceAttach),
		"memory": write(procPath(pid, "mem")), "stop": syscall.Kill(pid, syscall.SIGSTOP), "kill": syscall.Kill(pid, syscall.SIGKILL),
	}
	for _, fd := range []string{"0", "1", "2", "3"} {
		errs["descriptor "+fd] = write(procPath(pid, "fd/"+fd))
	}
	return errs
}

// continueByTimer sets a timer with which the kernel continues this process every two milliseconds.
func continueByTimer() {
	event := struct {
		value   uint64
		signal  int32
		notify  int32
		padding [48]byte
	}{signal: int32(syscall.SIGCONT)}
	var id int32
	if _, errno := call(syscall.SYS_TIMER_CREATE, 1, uintptr(unsafe.Pointer(&event)), uintptr(unsafe.Pointer(&id))); errno != 0 {
		fail("timer_create: " + errno.Error())
	}
	every := [2]syscall.Timespec{{Nsec: 2e6}, {Nsec: 2e6}}
	if _, errno := call(syscall.SYS_TIMER_SETTIME, uintptr(id), 0, uintptr(unsafe.Pointer(&every)), 0); errno != 0 {
		fail("timer_settime: " + errno.Error())
	}
}

// Commands of fcntl.
const (
	setSignal = 10
	setLease  = 1024
	notify    = 1026
)

// continueByNotice watches the workspace, so that the kernel continues this process when a file there is read.
func continueByNotice() {
	const access, multishot = 1, 0x80000000
	fd, err := syscall.Open("/workspace", syscall.O_RDONLY, 0)
	if err != nil {
		fail(err.Error())
	}
	_, one := call(syscall.SYS_FCNTL, uintptr(fd), setSignal, uintptr(syscall.SIGCONT))
	_, two := call(syscall.SYS_FCNTL, uintptr(fd), notify, access|multishot)
	if one != 0 || two != 0 {
		fail(fmt.Sprint("notify: ", one, two))
	}
}

// continueByLease takes a lease on a file. When the file is opened, the kernel continues this process and delays the
// open.
func continueByLease() {
	fd, err := syscall.Open(leasedFile, syscall.O_RDWR, 0)
	if err != nil {
		fail(err.Error())
	}
	_, _ = call(syscall.SYS_FCNTL, uintptr(fd), setSignal, uintptr(syscall.SIGCONT))
	_, _ = call(syscall.SYS_FCNTL, uintptr(fd), setLease, syscall.F_WRLCK) // it fails if another process has the file open
}

// continueEachOther sends SIGCONT to all processes, from four processes.
func continueEachOther() {
	for range 3 {
		if pid, errno := forkContinuer(); errno != 0 || pid == 0 {
			return
		}
	}
	for {
		_ = syscall.Kill(-1, syscall.SIGCONT)
	}
}

//go:nosplit
func forkContinuer() (uintptr, syscall.Errno) {
	pid, _, errno := syscall.RawSyscall6(syscall.SYS_CLONE, uintptr(syscall.SIGCHLD), 0, 0, 0, 0, 0)
	if errno == 0 && pid == 0 {
		for {
			syscall.RawSyscall6(syscall.SYS_KILL, ^uintptr(0), uintptr(syscall.SIGCONT), 0, 0, 0, 0)
		}
	}
	return pid, errno
}

// forkOn is a chain of processes. Each forks the next and ends.
//
//go:nosplit
func forkOn() {
	pid, _, errno := syscall.RawSyscall6(syscall.SYS_CLONE, uintptr(syscall.SIGCHLD), 0, 0, 0, 0, 0)
	if errno == 0 && pid == 0 {
		forkChain()
	}
}

//go:nosplit
func forkChain() {
	for {
		pid, _, errno := syscall.RawSyscall6(syscall.SYS_CLONE, uintptr(syscall.SIGCHLD), 0, 0, 0, 0, 0)
		if errno == 0 && pid != 0 {
			syscall.RawSyscall6(syscall.SYS_EXIT_GROUP, 0, 0, 0, 0, 0, 0)
		}
		syscall.RawSyscall6(syscall.SYS_SETSID, 0, 0, 0, 0, 0, 0)
	}
}

// endLeader ends the first thread of this process. The rest looks like a zombie.
func endLeader() {
	_, _, _ = syscall.Syscall(syscall.SYS_EXIT, 0, 0, 0)
}

// waitForChild waits in the kernel for a child that neither ends nor executes a program.
func waitForChild() {
	const vfork = 0x4000
	pid, _, errno := syscall.Syscall6(syscall.SYS_CLONE, vfork|uintptr(syscall.SIGCHLD), 0, 0, 0, 0, 0)
	if errno == 0 && pid == 0 {
		idle()
	}
}

//go:nosplit
func idle() {
	for {
		syscall.RawSyscall6(syscall.SYS_PPOLL, 0, 0, 0, 0, 0, 0)
	}
}
