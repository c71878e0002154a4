package fork

import (
	"encoding/binary"
	"slices"
	"strconv"
	"unsafe"

	"golang.org/x/sys/unix"
)

// planRoom is the memory that the starter reserves for a plan, in bytes. By default execve accepts 2 MiB of arguments
// and variables including their pointers.
const planRoom = 4 << 20

// plan is the input of the supervisor and of the command's process. The keeper writes it with addresses that
// are valid in the starter's process. The starter fills in the descriptors, because it receives them.
type plan struct {
	path       uintptr
	argv, env  uintptr
	dir        int
	files      [3]int
	extra      int // -1: none
	errors     int // closes on exec
	status     int
	uid, gid   int
	groups     uintptr
	groupCount int
	nice       int
	processes  unix.Rlimit // 0: the keeper's limit
	score      uintptr
	scoreSize  int
	scorePath  uintptr
	name       uintptr
	bounding   int // the last capability that the kernel knows
	cloning    uintptr

	// The rest is memory for the child.
	report report
	wait   int32
	action [4]uint64 // a zero struct sigaction is SIG_DFL
	// unblocked is a mask of no signals.
	unblocked uint64
	header    unix.CapUserHeader
	few       [2]unix.CapUserData
}

// encode returns a plan and everything that it points to, for a process that reads it to the address base.
func encode(c Command, bounding int, cloning, base uintptr) ([]byte, error) {
	const few = 1<<unix.CAP_SETUID | 1<<unix.CAP_SETGID
	p := plan{extra: -1, uid: c.UID, gid: c.GID, nice: c.Nice, bounding: bounding, cloning: cloning,
		groupCount: len(c.Groups)}
	p.header.Version = unix.LINUX_CAPABILITY_VERSION_3
	p.few[0] = unix.CapUserData{Effective: few, Permitted: few}
	p.processes = unix.Rlimit{Cur: c.Processes, Max: c.Processes}
	if c.Extra != nil {
		p.extra = 0 // the starter sets the number
	}
	m := &image{base: base, content: make([]byte, unsafe.Sizeof(p), 4<<10)}
	p.groups = m.address()
	for _, g := range c.Groups {
		m.content = binary.NativeEndian.AppendUint32(m.content, g)
	}
	score := strconv.Itoa(c.OOMScore)
	p.scoreSize = len(score)
	for _, t := range []struct {
		text string
		to   *uintptr
	}{
		{c.Path, &p.path}, {score, &p.score}, {"/proc/self/oom_score_adj", &p.scorePath}, {"supervisor", &p.name},
	} {
		var err error
		if *t.to, err = m.text(t.text); err != nil {
			return nil, err
		}
	}
	var err error
	if p.argv, err = m.list(c.Args); err != nil {
		return nil, err
	}
	if p.env, err = m.list(c.Env); err != nil {
		return nil, err
	}
	if len(m.content) > planRoom {
		return nil, errTooLarge
	}
	copy(m.content, unsafe.Slice((*byte)(unsafe.Pointer(&p)), unsafe.Sizeof(p)))
	return m.content, nil
}

// image is memory of the starter's process, starting at base.
type image struct {
	base    uintptr
	content []byte
}

func (m *image) address() uintptr { return m.base + uintptr(len(m.content)) }

// text adds a NUL-terminated string and returns its address.
func (m *image) text(s string) (uintptr, error) {
	b, err := unix.ByteSliceFromString(s)
	if err != nil {
		return 0, err
	}
	at := m.address()
	m.content = append(m.content, b...)
	return at, nil
}

// list adds the pointers to strings for execve, ending with nil, and returns their address.
func (m *image) list(all []string) (uintptr, error) {
	addresses := make([]uintptr, 0, len(all)+1)
	for _, s := range all {
		at, err := m.text(s)
		if err != nil {
			return 0, err
		}
		addresses = append(addresses, at)
	}
	const word = int(unsafe.Sizeof(uintptr(0)))
	m.content = append(m.content, make([]byte, -len(m.content)&(word-1))...)
	at := m.address()
	m.content = slices.Grow(m.content, word*(len(all)+1))
	for _, a := range append(addresses, 0) {
		m.content = binary.NativeEndian.AppendUint64(m.content, uint64(a))
	}
	return at, nil
}
