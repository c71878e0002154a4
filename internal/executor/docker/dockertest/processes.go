package dockertest

import (
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// Processes returns the processes of a container whose program ends in a name and whose first or second argument is another,
// by their ids on this machine. The container is given by its full id, and the engine must be this machine's.
func Processes(t testing.TB, containerID, name, argument string) (pids []int) {
	t.Helper()
	found, err := filepath.Glob("/proc/[0-9]*/cmdline")
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range found {
		line, err := os.ReadFile(file)
		args := strings.Split(string(line), "\x00")
		if err != nil || len(args) < 3 || !strings.HasSuffix(args[0], name) || !slices.Contains(args[1:3], argument) {
			continue
		}
		cgroup, err := os.ReadFile(filepath.Join(filepath.Dir(file), "cgroup"))
		if err != nil || !strings.Contains(string(cgroup), containerID) {
			continue // it has ended, or is another container's
		}
		if pid, err := strconv.Atoi(filepath.Base(filepath.Dir(file))); err == nil {
			pids = append(pids, pid)
		}
	}
	return pids
}

// KillProcesses kills processes without warning. One that has ended meanwhile needs no kill.
func KillProcesses(pids []int) {
	for _, pid := range pids {
		_ = unix.Kill(pid, unix.SIGKILL)
	}
}

// KillBroker kills the broker of a sandbox's container, which is given by its full id.
func KillBroker(t testing.TB, containerID string) {
	t.Helper()
	pids := Processes(t, containerID, "guest", "broker")
	if len(pids) == 0 {
		t.Errorf("container %s has no broker", containerID)
	}
	KillProcesses(pids)
}
