//go:build linux

// Package cgroup reads a sandbox's resource usage from its control group.
package cgroup

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"strconv"
	"time"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/guest/wire"
)

// Sample writes the sandbox's usage from its cgroup (version 2, then 1).
func Sample(pids int, out io.Writer) error {
	u := wire.Usage{PIDs: int64(pids)}
	var err error
	if u.CPUTime, err = CPUTime(); err != nil {
		return err
	}
	u.MemoryBytes, err = field("/sys/fs/cgroup/memory.current", "")
	cache, cacheErr := field("/sys/fs/cgroup/memory.stat", "inactive_file ")
	if err != nil {
		if u.MemoryBytes, err = field("/sys/fs/cgroup/memory/memory.usage_in_bytes", ""); err != nil {
			return fmt.Errorf("read the memory of the sandbox: %w", err)
		}
		cache, cacheErr = field("/sys/fs/cgroup/memory/memory.stat", "total_inactive_file ")
	}
	if cacheErr == nil && cache < u.MemoryBytes { // the kernel may drop this cache
		u.MemoryBytes -= cache
	}
	return json.NewEncoder(out).Encode(u)
}

// CPUTime returns the sandbox's CPU time since its start.
func CPUTime() (time.Duration, error) {
	micros, err := field("/sys/fs/cgroup/cpu.stat", "usage_usec ")
	if err == nil {
		return time.Duration(micros) * time.Microsecond, nil
	}
	nanos, err := field("/sys/fs/cgroup/cpuacct/cpuacct.usage", "")
	if err != nil {
		return 0, fmt.Errorf("read the CPU time of the sandbox: %w", err)
	}
	return time.Duration(nanos), nil
}

// field returns the number after a name at the start of a line.
func field(file, name string) (int64, error) {
	b, err := os.ReadFile(file)
	if err != nil {
		return 0, err
	}
	for line := range bytes.Lines(b) {
		if rest, ok := bytes.CutPrefix(line, []byte(name)); ok {
			return strconv.ParseInt(string(bytes.TrimSpace(rest)), 10, 64)
		}
	}
	return 0, fmt.Errorf("%s contains no line %q", file, name)
}

// OOMKills counts the processes of the sandbox that the kernel has killed for lack of memory. It keeps its file open,
// because it is read before and after each command.
type OOMKills struct{ file *os.File }

// OpenOOMKills opens the counter of the sandbox's cgroup (version 2, then 1). Without one, nothing is counted.
func OpenOOMKills() OOMKills {
	for _, name := range []string{"/sys/fs/cgroup/memory.events", "/sys/fs/cgroup/memory/memory.oom_control"} {
		if file, err := os.Open(name); err == nil {
			return OOMKills{file}
		}
	}
	return OOMKills{}
}

// Count returns the number so far, 0 if it cannot be read.
func (o OOMKills) Count() int {
	var b [512]byte
	n, _ := o.file.ReadAt(b[:], 0) // io.EOF with the whole content, or a nil file without any
	for line := range bytes.Lines(b[:n]) {
		if rest, ok := bytes.CutPrefix(line, []byte("oom_kill ")); ok {
			n, err := strconv.Atoi(string(bytes.TrimSpace(rest)))
			if err == nil {
				return n
			}
		}
	}
	return 0
}
