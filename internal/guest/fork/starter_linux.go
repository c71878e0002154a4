package fork

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// sendTime limits how long the starter takes to read a command. It does nothing else but fork.
const sendTime = 5 * time.Second

// Starter starts commands from a separate process. Use NewStarter: the zero value is not ready.
type Starter struct {
	bounding int     // highest capability of the bounding set, -1 if it is empty
	cloning  uintptr // flags with which a supervisor creates the command's process

	mu   sync.Mutex // guards the fields below and the order of messages
	pid  int
	base uintptr // address of the memory for a plan in the starter's process
	conn *os.File
}

// NewStarter forks the starter's process with the caller's current identity and capabilities. Close ends the
// process; so does the end of the caller.
func NewStarter() (*Starter, error) {
	s := &Starter{cloning: cloning()}
	var err error
	if s.bounding, err = lastBounding(); err != nil {
		return nil, err
	}
	if err := s.launch(); err != nil {
		return nil, err
	}
	return s, nil
}

// PID returns the parent process of supervisors.
func (s *Starter) PID() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.pid
}

// Close ends the starter's process. Started commands continue.
func (s *Starter) Close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.conn.Close()
}

// Start starts a command and returns once its program runs. The caller must close the command's files.
func (s *Starter) Start(c Command) (*Child, error) {
	failed, failedIn, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	defer failed.Close()
	status, statusIn, err := socketPair()
	if err != nil {
		return nil, errors.Join(err, failedIn.Close())
	}
	err = s.send(c, failedIn, statusIn)
	if err = errors.Join(err, failedIn.Close(), statusIn.Close()); err != nil {
		return nil, errors.Join(err, status.Close())
	}
	child := &Child{status: status}
	if err := child.begin(failed); err != nil {
		return nil, errors.Join(err, status.Close())
	}
	return child, nil
}

// send sends a command to the starter's process. If the process was killed, it is forked again: it has done nothing for
// a command that it could not read.
func (s *Starter) send(c Command, failed, status *os.File) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	err := s.sendTo(c, failed, status)
	if !errors.Is(err, unix.EPIPE) && !errors.Is(err, unix.ECONNRESET) {
		return err
	}
	if err := errors.Join(s.conn.Close(), s.launch()); err != nil {
		return fmt.Errorf("fork the starter of commands again: %w", err)
	}
	return s.sendTo(c, failed, status)
}

func (s *Starter) sendTo(c Command, failed, status *os.File) error {
	files := []*os.File{failed, status, c.Dir, c.Files[0], c.Files[1], c.Files[2]}
	if c.Extra != nil {
		files = append(files, c.Extra)
	}
	text, err := encode(c, s.bounding, s.cloning, s.base)
	if err != nil {
		return err
	}
	fds, err := descriptors(files)
	if err != nil {
		return err
	}
	if err := s.conn.SetWriteDeadline(time.Now().Add(sendTime)); err != nil {
		return err
	}
	head := binary.NativeEndian.AppendUint64(nil, uint64(len(text)))
	if err := sendWithFiles(s.conn, head, fds); err != nil {
		return fmt.Errorf("send the command to its starter: %w", err)
	}
	runtime.KeepAlive(files)
	if _, err := s.conn.Write(text); err != nil {
		return fmt.Errorf("send the command to its starter: %w", err)
	}
	return nil
}

// sendWithFiles writes a message of a few bytes with descriptors. The kernel sends it atomically.
func sendWithFiles(conn *os.File, p []byte, fds []int) error {
	raw, err := conn.SyscallConn()
	if err != nil {
		return err
	}
	rights := unix.UnixRights(fds...)
	waitErr := raw.Write(func(fd uintptr) bool {
		err = unix.Sendmsg(int(fd), p, rights, nil, unix.MSG_NOSIGNAL)
		return !errors.Is(err, unix.EAGAIN)
	})
	return errors.Join(waitErr, err)
}

// descriptors returns the descriptors of files, which stay open. The command's reads and writes must block,
// as programs expect. (*os.File).Fd would also make the keeper's block if they share the description.
func descriptors(files []*os.File) (fds []int, err error) {
	const firstOfCommand = 3
	for i, f := range files {
		raw, err := f.SyscallConn()
		if err != nil {
			return nil, err
		}
		var setErr error
		err = raw.Control(func(fd uintptr) {
			fds = append(fds, int(fd))
			if i >= firstOfCommand {
				setErr = unix.SetNonblock(int(fd), false)
			}
		})
		if err = errors.Join(err, setErr); err != nil {
			return nil, fmt.Errorf("prepare the descriptors of a command: %w", err)
		}
	}
	return fds, nil
}

// launch forks the starter's process.
func (s *Starter) launch() error {
	own, other, err := socketPair()
	if err != nil {
		return err
	}
	room, err := unix.Mmap(-1, 0, planRoom, unix.PROT_READ|unix.PROT_WRITE,
		unix.MAP_PRIVATE|unix.MAP_ANONYMOUS|unix.MAP_NORESERVE)
	if err != nil {
		return errors.Join(fmt.Errorf("reserve memory for commands: %w", err), own.Close(), other.Close())
	}
	l := newLoop(room, int(other.Fd()))
	if l.unused, err = anonymous(); err != nil {
		return errors.Join(err, unix.Munmap(room), own.Close(), other.Close())
	}
	pid, errno := forkLoop(l)
	runtime.KeepAlive(l)
	err = errors.Join(unix.Munmap(room), other.Close()) // the forked process has its own
	if errno != 0 {
		err = errors.Join(&Error{stageFork, errno}, err)
	}
	if err != nil {
		return errors.Join(err, own.Close())
	}
	s.pid, s.base, s.conn = pid, l.base, own
	return nil
}

// socketPair returns a non-blocking file for this process and a blocking one for the other process.
func socketPair() (own, other *os.File, err error) {
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err == nil {
		err = unix.SetNonblock(fds[0], true)
	}
	if err != nil {
		return nil, nil, err
	}
	return os.NewFile(uintptr(fds[0]), "own end"), os.NewFile(uintptr(fds[1]), "other end"), nil
}

// Flags with which supervisors create the processes of commands. A process that shares the memory of its supervisor
// until execve starts faster.
const (
	copied = uintptr(unix.SIGCHLD)
	shared = copied | unix.CLONE_VM | unix.CLONE_VFORK
)

// cloning returns the flags to use. Memory whose process takes another identity is no longer dumpable. So the memory
// is copied in two cases:
//   - This process is dumpable. Then sandbox code may be user 0, which owns the files in /proc of other processes.
//   - The kernel has fs.suid_dumpable=1. Then sandbox code could trace processes that have just become its user's.
func cloning() uintptr {
	dumpable, err := unix.PrctlRetInt(unix.PR_GET_DUMPABLE, 0, 0, 0, 0)
	if err != nil || dumpable != 0 {
		return copied
	}
	setting, err := os.ReadFile("/proc/sys/fs/suid_dumpable")
	if err != nil || strings.TrimSpace(string(setting)) == "1" {
		return copied
	}
	return shared
}

// lastBounding returns the highest capability of the bounding set, -1 if the set is empty.
func lastBounding() (int, error) {
	for c := unix.CAP_LAST_CAP; c >= 0; c-- {
		r, err := unix.PrctlRetInt(unix.PR_CAPBSET_READ, uintptr(c), 0, 0, 0)
		if errors.Is(err, unix.EINVAL) {
			continue // the kernel does not know this capability
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

// errTooLarge is execve's error for arguments that are too large.
var errTooLarge = &Error{stageExec, syscall.E2BIG}
