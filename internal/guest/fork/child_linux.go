package fork

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

const (
	// ExtraDescriptor is the descriptor of Command.Extra in the command: above those that shells allow in scripts.
	ExtraDescriptor = 10
	// nudge is the interval at which a command that was stopped before execve is continued. It is killed
	// after limit.
	nudge = 20 * time.Millisecond
	limit = time.Second
)

// Command is a command to start.
type Command struct {
	Path      string // path of the program
	Args, Env []string
	Dir       *os.File
	Files     [3]*os.File
	Extra     *os.File // nil: none
	UID, GID  int
	// Groups are the supplementary groups.
	Groups []uint32
	// Nice lowers the priority of the command; the caller keeps 0.
	Nice int
	// Processes limits the user's processes; 0 sets no limit.
	Processes uint64
	// OOMScore is the command's oom_score_adj.
	OOMScore int
}

// Child is a started command.
type Child struct {
	// Supervisor is the ancestor of all the command's processes until Close. PID is the command.
	Supervisor, PID int
	status          *os.File
}

// Error is a failed step of the start of a command. It unwraps to an errno.
type Error struct {
	stage stage
	errno syscall.Errno
}

var stages = map[stage]string{
	stageFork:         "fork",
	stageSession:      "create a session",
	stageDescriptors:  "set descriptors",
	stagePriority:     "lower the priority",
	stageLimits:       "set limits",
	stageDirectory:    "enter the working directory",
	stageCapabilities: "drop capabilities",
	stageGroups:       "set the groups",
	stageIdentity:     "set the user",
	stageExec:         "execute",
}

func (e *Error) Error() string { return stages[e.stage] + ": " + e.errno.Error() }

// Unwrap returns the errno.
func (e *Error) Unwrap() error { return e.errno }

// InDirectory reports whether the step was entering the working directory.
func (e *Error) InDirectory() bool { return e.stage == stageDirectory }

// ErrStopped: sandbox code stopped the command before it reached its program.
var ErrStopped = errors.New("other code in the sandbox stopped it before it started")

// begin waits until the command has executed its program. A stall of this process is not taken for one of the command:
// a read that began in time gives nothing up.
func (c *Child) begin(failed *os.File) error {
	until := time.Now().Add(limit)
	if err := c.identify(until); err != nil {
		return err
	}
	for pause := nudge; ; pause = max(nudge, min(2*pause, limit/4, time.Until(until))) {
		asked := time.Now()
		if err := failed.SetReadDeadline(asked.Add(pause)); err != nil {
			return err
		}
		r, err := readReport(failed)
		switch {
		case err == nil:
			return &Error{stage(r.what), syscall.Errno(r.value)}
		case errors.Is(err, io.EOF):
			return c.began()
		case !errors.Is(err, os.ErrDeadlineExceeded):
			return err
		case asked.After(until):
			c.signal(unix.SIGKILL)
			return ErrStopped
		default:
			c.signal(unix.SIGCONT)
		}
	}
}

// identify reads the processes from the first report. Without one, they stay 0.
func (c *Child) identify(until time.Time) error {
	if err := c.status.SetReadDeadline(until); err != nil {
		return err
	}
	if r, err := readReport(c.status); err == nil && r.what == reportPID {
		c.Supervisor, c.PID = int(r.supervisor), int(r.value)
	}
	return nil
}

// began returns the result of begin after the program was executed, or its supervisor ended.
func (c *Child) began() error {
	if c.PID == 0 { // the report may have come since
		if err := c.identify(time.Now().Add(limit)); err != nil {
			return err
		}
	}
	if c.PID == 0 {
		return errors.New("the supervisor ended before the command started")
	}
	return c.status.SetReadDeadline(time.Time{})
}

// signal signals the command's process, and ignores one that is gone.
func (c *Child) signal(s syscall.Signal) {
	if c.PID > 0 {
		_ = unix.Kill(c.PID, s)
	}
}

// Close lets the supervisor exit. The caller must close every Child after Wait has returned.
func (c *Child) Close() error { return c.status.Close() }

// Wait returns how the command ended. An error means that its supervisor was killed; the command may then
// still run.
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
	number := func(at int) int32 { return int32(binary.NativeEndian.Uint32(b[at:])) }
	return report{number(0), number(4), number(8)}, nil
}
