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

// Processes returns the pids, on this machine, of the processes of a container whose program path ends in name and
// whose first or second argument is argument. containerID is the full id. The engine must be on this machine.
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
			continue // it has ended, or belongs to another container
		}
		if pid, err := strconv.Atoi(filepath.Base(filepath.Dir(file))); err == nil {
			pids = append(pids, pid)
		}
	}
	return pids
}

// KillProcesses kills processes with SIGKILL. It ignores processes that have ended.
func KillProcesses(pids []int) {
	for _, pid := range pids {
		_ = unix.Kill(pid, unix.SIGKILL)
	}
}

// KillBroker kills the broker of a sandbox's container. containerID is the full id.
func KillBroker(t testing.TB, containerID string) {
	t.Helper()
	pids := Processes(t, containerID, "guest", "broker")
	if len(pids) == 0 {
		t.Errorf("container %s has no broker", containerID)
	}
	KillProcesses(pids)
}
