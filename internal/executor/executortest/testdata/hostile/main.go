//go:build linux

// Command hostile attacks its own sandbox. Its first argument names the attack. For each kind of attack it prints one
// line: the number of attempts and of successes, and the first success.
package main

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"syscall"
	"time"
)

func main() {
	attacks := map[string]func(args []string){
		"stop":    stopOthers,  // the name of the file that ends it
		"reach":   reachOthers, // the name of the file that ends it
		"trace":   traceStarts, // the name of the file that ends it
		"peek":    peek,        // the name of the file that ends it
		"forge":   forge,       // the name of the file that ends it
		"forger":  forger,      // a kind
		"mayhem":  mayhem,      // the directory for its files
		"tick":    tick,        // a file
		"spin":    spin,        // how many processes
		"bomb":    bomb,        // fork or memory
		"exhaust": exhaust,     // a kind
		"use":     use,         // nothing
		"hold":    func([]string) { time.Sleep(time.Hour) },
		"exit":    func(args []string) { os.Exit(number(args[0])) },
	}
	attack := attacks[os.Args[1]]
	if attack == nil {
		fail("there is no attack " + os.Args[1])
	}
	attack(os.Args[2:])
}

// tally counts attempts of one kind.
type tally struct {
	name                string
	attempts, successes int
	first               string
}

func (t *tally) add(succeeded bool, first string) {
	t.attempts++
	if succeeded {
		if t.successes == 0 {
			t.first = first
		}
		t.successes++
	}
}

func (t *tally) print() {
	fmt.Printf("attack %s attempts=%d successes=%d first=%q\n", t.name, t.attempts, t.successes, t.first)
}

// process is what every user may read about a process.
type process struct {
	pid, group, parent int    // group is the process that a thread belongs to
	uids               [4]int // real, effective, saved, of files
}

// look reads the status of a process or thread.
func look(pid int) (p process, found bool) {
	text, err := os.ReadFile(procPath(pid, "status"))
	if err != nil {
		return p, false
	}
	p.pid = pid
	for line := range strings.Lines(string(text)) {
		switch f := strings.Fields(line); {
		case len(f) == 2 && f[0] == "Tgid:":
			p.group = number(f[1])
		case len(f) == 2 && f[0] == "PPid:":
			p.parent = number(f[1])
		case len(f) == 5 && f[0] == "Uid:":
			for i := range p.uids {
				p.uids[i] = number(f[1+i])
			}
		}
	}
	return p, true
}

// own reports whether all of its user ids are those of this program.
func (p process) own() bool {
	uid := os.Getuid()
	return p.uids == [4]int{uid, uid, uid, uid}
}

// processes returns the ids of all processes.
func processes() (ids []int) {
	names, err := os.ReadDir("/proc")
	if err != nil {
		fail(err.Error())
	}
	for _, n := range names {
		if id, err := strconv.Atoi(n.Name()); err == nil {
			ids = append(ids, id)
		}
	}
	return ids
}

// latest returns the latest process or thread id in the sandbox.
func latest() int {
	text, err := os.ReadFile("/proc/loadavg")
	if err != nil {
		fail(err.Error())
	}
	f := strings.Fields(string(text))
	return number(f[len(f)-1])
}

func procPath(pid int, name string) string { return "/proc/" + strconv.Itoa(pid) + "/" + name }

func exists(name string) bool {
	_, err := os.Stat(name)
	return err == nil
}

func number(s string) int {
	n, err := strconv.Atoi(s)
	if err != nil {
		fail(err.Error())
	}
	return n
}

func call(trap uintptr, args ...uintptr) (uintptr, syscall.Errno) {
	var a [6]uintptr
	copy(a[:], args)
	r, _, errno := syscall.RawSyscall6(trap, a[0], a[1], a[2], a[3], a[4], a[5])
	return r, errno
}

func fail(why string) {
	fmt.Fprintln(os.Stderr, "hostile:", why)
	os.Exit(100)
}
