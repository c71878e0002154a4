package audit

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
)

// isOf reports whether this machine shows a process as one of the container's. It does not if the engine is on another
// machine, or if this program runs in its own pid namespace.
func isOf(pid int, container string) bool {
	group, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "cgroup"))
	return err == nil && bytes.Contains(group, []byte(container))
}

// look reads a process of this machine from /proc. gone means that it has ended since the engine listed it.
func (p *process) look(container string) (gone bool, err error) {
	dir := filepath.Join("/proc", strconv.Itoa(p.pid))
	if !isOf(p.pid, container) {
		return true, nil
	}
	started, err := startOf(dir)
	if err != nil {
		return vanished(err)
	}
	threads, err := filepath.Glob(filepath.Join(dir, "task", "*", "status"))
	if err != nil {
		return false, err
	}
	p.users, p.fileUsers, p.groups = nil, nil, nil
	p.kernel = &kernelView{started: started, noNewPrivileges: true, filtered: true}
	for _, file := range threads {
		if gone, err := vanished(p.addThread(file)); !gone && err != nil {
			return false, err
		}
	}
	if len(p.users) == 0 {
		return true, nil
	}
	for _, m := range []struct {
		of  string
		ids []uint64
	}{{"uid_map", p.users}, {"uid_map", p.fileUsers}, {"gid_map", p.groups}} {
		if err := translate(filepath.Join(dir, m.of), m.ids); err != nil {
			return vanished(err)
		}
	}
	return false, nil
}

// vanished turns the error of an ended process into gone.
func vanished(err error) (bool, error) {
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ESRCH) {
		return true, nil
	}
	return false, err
}

// startOf returns the start time of a process, in kernel ticks.
func startOf(dir string) (string, error) {
	text, err := os.ReadFile(filepath.Join(dir, "stat"))
	if err != nil {
		return "", err
	}
	const started = 19 // index after the name, which is in brackets and may contain anything
	fields := strings.Fields(string(text[bytes.LastIndexByte(text, ')')+1:]))
	if len(fields) <= started {
		return "", fmt.Errorf("unexpected content of %s/stat: %q", dir, text)
	}
	return fields[started], nil
}

// readStatus parses a status file into names and values.
func readStatus(file string) (map[string]string, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	fields := make(map[string]string)
	for line := range strings.Lines(string(text)) {
		name, value, _ := strings.Cut(line, ":")
		fields[name] = strings.TrimSpace(value)
	}
	return fields, nil
}

// addThread adds a thread from its status file.
func (p *process) addThread(file string) error {
	s, err := readStatus(file)
	if err != nil {
		return err
	}
	if strings.HasPrefix(s["State"], "Z") || strings.HasPrefix(s["State"], "X") {
		return nil // it has ended
	}
	for _, set := range []string{"CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb"} {
		bits, err := strconv.ParseUint(s[set], 16, 64)
		if err != nil {
			return fmt.Errorf("%s: %s: %w", file, set, err)
		}
		p.kernel.capabilities |= bits
	}
	const filter = "2" // SECCOMP_MODE_FILTER
	p.kernel.noNewPrivileges = p.kernel.noNewPrivileges && s["NoNewPrivs"] == "1"
	p.kernel.filtered = p.kernel.filtered && s["Seccomp"] == filter
	users, err := readIDs(s["Uid"])
	groups, groupsErr := readIDs(s["Gid"])
	if err = errors.Join(err, groupsErr); err != nil || len(users) != 4 {
		return fmt.Errorf("unexpected users in %s: %q: %w", file, s["Uid"], err)
	}
	p.users, p.fileUsers, p.groups = append(p.users, users[:3]...), append(p.fileUsers, users[3]), append(p.groups,
		groups...)
	return nil
}

func readIDs(text string) (ids []uint64, err error) {
	for field := range strings.FieldsSeq(text) {
		id, err := strconv.ParseUint(field, 10, 32)
		if err != nil {
			return nil, err
		}
		ids = append(ids, id)
	}
	return ids, nil
}

// translate maps ids of this machine to those of a process's user namespace. Ids outside of the map stay unchanged.
func translate(file string, ids []uint64) error {
	text, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	of := slices.Clone(ids)
	for line := range strings.Lines(string(text)) {
		span, err := readIDs(line) // first id inside, first id here, count
		if err != nil || len(span) != 3 {
			return fmt.Errorf("unexpected content of %s: %q", file, line)
		}
		for i, id := range of {
			if id >= span[1] && id-span[1] < span[2] {
				ids[i] = span[0] + id - span[1]
			}
		}
	}
	return nil
}
