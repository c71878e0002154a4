package fork

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime"
	"slices"
	"strconv"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

const (
	// ExtraDescriptor is where a command finds Command.Extra: above those that shells let scripts name.
	ExtraDescriptor = 10
	// firstOwn is the lowest descriptor that a plan may name, so that none is overwritten in the child.
	firstOwn = ExtraDescriptor + 1
	// nudge is how often a command that was stopped before execve is continued, and limit is when it is killed.
	nudge = 20 * time.Millisecond
	limit = time.Second
)

// Command is a command to start.
type Command struct {
	Path      string // of the program
	Args, Env []string
	Dir       *os.File
	Files     [3]*os.File
	Extra     *os.File // nil: none
	UID, GID  int
	// Groups are the supplementary groups.
	Groups []uint32
	// Nice lowers the priority of the command; the caller keeps 0.
	Nice int
	// Processes bounds how many processes the user has; 0 sets no limit.
	Processes uint64
	// OOMScore is the command's oom_score_adj.
	OOMScore int
}

// Child is a command that has started.
type Child struct {
	// Supervisor is the process that all of the command descends from, until Close. PID is the command.
	Supervisor, PID int
	status          *os.File
}

// Error says which step towards a command failed. It unwraps to an errno.
type Error struct {
	stage stage
	errno syscall.Errno
}

var stages = map[stage]string{
	stageFork: "fork", stageSession: "begin a session", stageDescriptors: "set descriptors", stagePriority: "lower the priority",
	stageLimits: "set limits", stageDirectory: "enter the working directory", stageCapabilities: "drop capabilities",
	stageGroups: "set the groups", stageIdentity: "change the user", stageExec: "execute",
}

func (e *Error) Error() string { return stages[e.stage] + ": " + e.errno.Error() }

// Unwrap returns the errno.
func (e *Error) Unwrap() error { return e.errno }

// InDirectory reports whether the working directory was the reason.
func (e *Error) InDirectory() bool { return e.stage == stageDirectory }

// ErrStopped means that the command did not reach its program in time: sandbox code stopped it.
var ErrStopped = errors.New("other code of the sandbox stopped it before it began")

// Start starts a command and returns once its program runs. The caller closes the command's files.
func Start(c Command) (*Child, error) {
	p, err := newPlan(c)
	if err != nil {
		return nil, err
	}
	failed, failedIn, err := os.Pipe()
	if err != nil {
		return nil, errors.Join(err, p.close())
	}
	defer failed.Close()
	status, statusIn, err := socketPair()
	if err != nil {
		return nil, errors.Join(err, p.close(), failedIn.Close())
	}
	if err = p.own(failedIn, &p.errors); err == nil {
		err = p.own(statusIn, &p.status)
	}
	child := &Child{status: status}
	if err == nil {
		var errno syscall.Errno
		if child.Supervisor, errno = forkSupervisor(&p.plan); errno != 0 {
			err = &Error{stageFork, errno}
		}
	}
	runtime.KeepAlive(p)
	if err = errors.Join(err, p.close(), failedIn.Close(), statusIn.Close()); err != nil {
		return nil, errors.Join(err, status.Close())
	}
	if err := child.begin(failed); err != nil {
		return nil, errors.Join(err, status.Close())
	}
	return child, nil
}

// begin waits until the command executes its program.
func (c *Child) begin(failed *os.File) error {
	until := time.Now().Add(limit)
	if err := c.status.SetReadDeadline(until); err != nil {
		return err
	}
	first, err := readReport(c.status)
	if err == nil && first.what == reportPID {
		c.PID = int(first.value)
	}
	for pause := nudge; ; pause = min(2*pause, limit/4) {
		if err := failed.SetReadDeadline(time.Now().Add(pause)); err != nil {
			return err
		}
		r, err := readReport(failed)
		switch {
		case err == nil:
			return &Error{stage(r.what), syscall.Errno(r.value)}
		case errors.Is(err, io.EOF) && c.PID == 0:
			return errors.New("the supervisor ended before the command began")
		case errors.Is(err, io.EOF):
			return c.status.SetReadDeadline(time.Time{})
		case !errors.Is(err, os.ErrDeadlineExceeded):
			return err
		case time.Now().After(until):
			c.signal(unix.SIGKILL)
			return ErrStopped
		default:
			c.signal(unix.SIGCONT)
		}
	}
}

// signal signals the command's process; one that is gone needs none.
func (c *Child) signal(s syscall.Signal) {
	if c.PID > 0 {
		_ = unix.Kill(c.PID, s)
	}
}

// Close lets the supervisor exit. The caller closes every Child once Wait has returned.
func (c *Child) Close() error { return c.status.Close() }

// socketPair returns a file that does not block a thread, and one for the supervisor, which does.
func socketPair() (own, other *os.File, err error) {
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err == nil {
		err = unix.SetNonblock(fds[0], true)
	}
	if err != nil {
		return nil, nil, err
	}
	return os.NewFile(uintptr(fds[0]), "status"), os.NewFile(uintptr(fds[1]), "supervisor"), nil
}

// Wait returns how the command ended. An error means that its supervisor was killed; then the command may still run.
func (c *Child) Wait() (unix.WaitStatus, error) {
	r, err := readReport(c.status)
	if err != nil {
		return 0, fmt.Errorf("the supervisor of the command was killed: %w", err)
	}
	return unix.WaitStatus(r.value), nil
}

func readReport(f *os.File) (report, error) {
	var b [reportSize]byte
	if _, err := io.ReadFull(f, b[:]); err != nil {
		return report{}, err
	}
	return report{int32(binary.NativeEndian.Uint32(b[:])), int32(binary.NativeEndian.Uint32(b[4:]))}, nil
}

// prepared is a plan with the descriptors that it owns.
type prepared struct {
	plan
	owned []int
}

func newPlan(c Command) (_ *prepared, err error) {
	p := &prepared{plan: plan{extra: -1, uid: c.UID, gid: c.GID, nice: c.Nice}}
	p.header.Version = unix.LINUX_CAPABILITY_VERSION_3
	const few = 1<<unix.CAP_SETUID | 1<<unix.CAP_SETGID
	p.few[0] = unix.CapUserData{Effective: few, Permitted: few}
	p.groups, p.groupCount = unsafe.SliceData(slices.Clone(c.Groups)), len(c.Groups)
	if c.Processes > 0 {
		p.processes = &unix.Rlimit{Cur: c.Processes, Max: c.Processes}
	}
	if p.path, err = unix.BytePtrFromString(c.Path); err != nil {
		return nil, err
	}
	if p.argv, err = pointers(c.Args); err != nil {
		return nil, err
	}
	if p.env, err = pointers(c.Env); err != nil {
		return nil, err
	}
	score := strconv.Itoa(c.OOMScore)
	p.scoreSize = len(score)
	p.score, p.scorePath, p.name = text(score), text("/proc/self/oom_score_adj"), text("supervisor")
	if p.bounding, err = lastBounding(); err != nil {
		return nil, err
	}
	for i, f := range c.Files {
		if err := p.give(f, &p.files[i]); err != nil {
			return nil, errors.Join(err, p.close())
		}
	}
	if c.Extra != nil {
		if err := p.give(c.Extra, &p.extra); err != nil {
			return nil, errors.Join(err, p.close())
		}
	}
	if err := p.own(c.Dir, &p.dir); err != nil {
		return nil, errors.Join(err, p.close())
	}
	return p, nil
}

// lastBounding returns the highest capability of the bounding set, -1 where the set is empty.
func lastBounding() (int, error) {
	for c := unix.CAP_LAST_CAP; c >= 0; c-- {
		r, err := unix.PrctlRetInt(unix.PR_CAPBSET_READ, uintptr(c), 0, 0, 0)
		if errors.Is(err, unix.EINVAL) {
			continue // the kernel does not know this one
		}
		if err != nil {
			return 0, err
		}
		if r == 1 {
			return c, nil
		}
	}
	return -1, nil
}

// own duplicates a file's descriptor to one that the child overwrites none with.
func (p *prepared) own(f *os.File, to *int) error {
	raw, err := f.SyscallConn() // Fd would make it block
	if err != nil {
		return err
	}
	ctlErr := raw.Control(func(fd uintptr) {
		*to, err = unix.FcntlInt(fd, unix.F_DUPFD_CLOEXEC, firstOwn)
	})
	if err = errors.Join(ctlErr, err); err != nil {
		return fmt.Errorf("duplicate a descriptor: %w", err)
	}
	p.owned = append(p.owned, *to)
	return nil
}

// give is own for what the command gets: its reads and writes wait, as programs expect.
func (p *prepared) give(f *os.File, to *int) error {
	if err := p.own(f, to); err != nil {
		return err
	}
	return unix.SetNonblock(*to, false)
}

func (p *prepared) close() (err error) {
	for _, fd := range p.owned {
		err = errors.Join(err, unix.Close(fd))
	}
	p.owned = nil
	return err
}

// text is for constants, which hold no NUL.
func text(s string) *byte { return unsafe.SliceData(append([]byte(s), 0)) }

// pointers returns what execve takes: pointers to strings, and nil last.
func pointers(list []string) (**byte, error) {
	all := make([]*byte, len(list)+1)
	for i, s := range list {
		b, err := unix.BytePtrFromString(s)
		if err != nil {
			return nil, err
		}
		all[i] = b
	}
	return unsafe.SliceData(all), nil
}
