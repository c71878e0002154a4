//go:build linux

package keeper

import (
	"errors"
	"io"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/guest/cgroup"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/guest/deadline"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/guest/disk"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/guest/fork"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/guest/link"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/guest/output"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/guest/proc"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/guest/shellstate"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/guest/wire"
)

// Exit codes as in shells and timeout(1).
const (
	exitTimeout     = 124
	exitCannotStart = 126
	exitNotFound    = 127
	exitKilled      = 128 + int(unix.SIGKILL)
)

// killTime limits the killing of a command's process tree.
const killTime = 5 * time.Second

// command is one command that the keeper knows.
type command struct {
	id      string
	spec    link.Command
	in      *input     // nil: no input
	streams [2]*stream // nil with a log
	log     *output.Ring
	shell   shellstate.Collector
	changed func(waits bool)
	ended   chan struct{}
	// spares waits while a verifier runs, because no command may be killed then; nil for the verifier itself.
	spares func()

	supervisor atomic.Int64 // 0 before the start and after the end
	killed     atomic.Bool  // set by End
	// killing is held while the tree is killed: until then the supervisor must stay, so that no descendant
	// escapes.
	killing sync.Mutex

	mu     sync.Mutex   // guards the fields below
	result *wire.Result // set at the end

	kept int64 // set at the end: kept bytes of its output
}

// openOutput creates the files that the command's output needs from the start.
func (c *command) openOutput(create output.Create) error {
	if c.spec.Process {
		file, size, err := create(output.RingLimit)
		if err != nil {
			return err
		}
		c.log, err = output.MakeRing(file, size)
		return err
	}
	head, err := output.InMemory()
	if err != nil {
		return err
	}
	for i := range c.streams {
		c.streams[i] = newStream(head, int64(i)*link.Head, create, c.changed)
	}
	return nil
}

// beginning returns the file with the beginning of the command's output, or with its log.
func (c *command) beginning() *os.File {
	if c.log != nil {
		return c.log.File
	}
	return c.streams[0].head
}

// part returns the file with a part of the command's output, nil if there is none.
func (c *command) part(p link.Part) *os.File {
	if p < 0 || p >= link.Parts || c.log != nil {
		return nil
	}
	return c.streams[p%link.Window].open(p >= link.Window)
}

// drop closes the files with the kept output of a command that has ended. Streams close their windows.
func (c *command) drop() {
	files := []*os.File{c.beginning()}
	for i := range link.Part(len(c.streams)) {
		if f := c.part(link.Rest + i); f != nil {
			files = append(files, f)
		}
	}
	link.CloseAll(files)
}

// bytes returns how many bytes of the command's output are kept.
func (c *command) bytes() (sum int64) {
	if c.log != nil {
		return c.log.Kept()
	}
	for _, s := range c.streams {
		_, kept, _ := s.counts()
		sum += kept
	}
	return sum
}

func (c *command) status() link.Status {
	var s link.Status
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.log != nil {
		s.Total[0], _ = c.log.Counts()
	}
	for i, stream := range c.streams {
		if stream != nil {
			s.Total[i], s.Kept[i], _ = stream.counts()
		}
	}
	if c.in != nil {
		s.Taken, s.InputClosed = c.in.state()
	}
	if c.result != nil {
		s.Ended, s.Result, s.InputClosed = true, c.result, true
		s.Raw, s.Began = c.shell.Raw(), c.spec.Env
	}
	return s
}

func (c *command) detach(reader uint64) {
	for _, s := range c.streams {
		if s != nil {
			s.detach(reader)
		}
	}
}

// kill kills all descendants of the command, if it runs.
func (c *command) kill() {
	if c.supervisor.Load() <= 0 {
		return // a command that starts now sees killed
	}
	c.spare()
	c.killing.Lock()
	defer c.killing.Unlock()
	if root := int(c.supervisor.Load()); root > 0 {
		proc.KillTree(root, time.Now().Add(killTime))
	}
}

func (c *command) spare() {
	if c.spares != nil {
		c.spares()
	}
}

// starts holds the settings that a command's start needs.
type starts struct {
	starter    *fork.Starter
	dir, null  *os.File
	nice       int
	processes  func(uid int) uint64
	pids       int // process limit of the sandbox, 0 if unknown
	score      int
	freezeLock *sync.RWMutex // locked while the sandbox is frozen
	diskEnded  func() time.Duration
	oomKills   cgroup.OOMKills
	guard      func(what string, work func()) (panicked any) // of the keeper
	// as runs work on files as a user.
	as func(uid, gid int, work func() error) error
	// create creates a file without a name for output, as the sandbox's user.
	create output.Create
}

// run runs the command to its end, and returns the result.
func (c *command) run(s starts) wire.Result {
	began, oomKills := time.Now(), s.oomKills.Count()
	since, _ := deadline.SinceBoot() // 0 without the clock: the disk message may then appear wrongly
	out := c.writers()
	if c.spec.Failure != 0 {
		_, _ = io.WriteString(out[1], c.spec.Text) // never fails
		return c.counted(wire.Result{ExitCode: c.spec.Failure, Duration: time.Since(began)})
	}
	if r, entered := c.enter(s.freezeLock, began); !entered {
		c.stopInput()
		return c.counted(r)
	}
	child, pumps, err := c.start(s, out)
	if err != nil {
		c.stopInput()
		_, _ = io.WriteString(out[1], "guest: cannot start "+c.spec.Path+": "+err.Error()+"\n") // as above
		return c.counted(wire.Result{ExitCode: startCode(err), Duration: time.Since(began)})
	}
	status, timedOut, err := c.wait(child, began, s.guard)
	r := wire.Result{ExitCode: exitCode(status), TimedOut: timedOut, Duration: time.Since(began)}
	if timedOut {
		r.ExitCode = exitTimeout
	}
	if err != nil {
		r.ExitCode = exitKilled
	}
	c.stopInput()
	endPumps(pumps)
	if err != nil {
		_, _ = io.WriteString(out[1], "guest: "+err.Error()+"\n") // as above
	}
	if status.Signal() == unix.SIGKILL && s.diskEnded() > since {
		_, _ = io.WriteString(out[1], disk.Exceeded) // as above
	}
	r.OOMKilled = s.oomKills.Count() > oomKills
	if c.killed.Load() && !timedOut && status.Signal() == unix.SIGKILL {
		r.Problem, r.Message = wire.ProblemFailed, endedOnRequest
	}
	if c.inputCut() && !timedOut {
		r.Problem, r.Message = wire.ProblemInputCut, endedWithInput
	}
	return c.counted(r)
}

// wait waits for the end of the command, and ends it at its timeout, which starts when the command is
// requested.
func (c *command) wait(child *fork.Child, asked time.Time, guard func(string, func()) any) (
	status unix.WaitStatus, timedOut bool, err error) {
	c.supervisor.Store(int64(child.Supervisor))
	if c.killed.Load() || c.inputCut() {
		go guard("kill command "+c.id, c.kill) // it ends with the command
	}
	var late atomic.Bool
	done := make(chan struct{})
	var timer *time.Timer
	if c.spec.Timeout > 0 {
		timer = time.AfterFunc(c.spec.Timeout-time.Since(asked), func() {
			defer close(done)
			guard("timeout of command "+c.id, func() {
				defer func() { // also after a panic
					late.Store(true)
					proc.KillTree(child.Supervisor, time.Now().Add(killTime))
				}()
				c.spare()
			})
		})
	}
	status, err = child.Wait()
	if err != nil {
		_ = unix.Kill(-child.PID, unix.SIGKILL) // its session; processes that left it are now children of process 1
	}
	if timer != nil && !timer.Stop() {
		<-done
	}
	if c.spec.Process || c.spec.Verifier != nil { // its descendants end too, so that the next start finds its ports free
		proc.KillTree(child.Supervisor, time.Now().Add(killTime))
	}
	c.killing.Lock()
	defer c.killing.Unlock()
	c.supervisor.Store(0)
	err = errors.Join(err, child.Close())
	return status, late.Load(), err
}

// writers returns the destinations of stdout and stderr. A log is one stream, so that both keep their order.
func (c *command) writers() [2]io.Writer {
	if c.log != nil {
		w := notifying{c.log, c.changed}
		return [2]io.Writer{w, w}
	}
	return [2]io.Writer{c.streams[0], c.streams[1]}
}

type notifying struct {
	io.Writer
	changed func(waits bool)
}

func (n notifying) Write(p []byte) (int, error) {
	defer n.changed(len(p) < gathered)
	return n.Writer.Write(p)
}

// start starts the command and the pumps of its input and output. The caller has entered the gate; start
// leaves it.
func (c *command) start(s starts, out [2]io.Writer) (_ *fork.Child, pumps []*pump, err error) {
	defer func() { // outside the gate, because it takes time
		if err != nil {
			endPumps(pumps)
		}
	}()
	defer s.freezeLock.RUnlock()
	var theirs []*os.File
	defer func() { link.CloseAll(theirs) }() // the command has its own copies
	add := func(to io.Writer) (*os.File, error) {
		r, w, err := s.pipe(c.spec.UID, c.spec.GID)
		if err == nil {
			theirs = append(theirs, w)
			pumps = append(pumps, startPump(r, to, func(work func()) {
				if s.guard("output of command "+c.id, work) != nil {
					c.kill() // nothing reads its output, so it would block forever
				}
			}))
		}
		return w, err
	}
	f := fork.Command{
		Path: c.spec.Path, Args: c.spec.Args, Env: c.spec.Env, Dir: s.dir, UID: c.spec.UID, GID: c.spec.GID,
		Groups: c.groups(), Nice: s.nice, Processes: s.processes(c.spec.UID), OOMScore: s.score,
	}
	if f.Files[1], err = add(out[0]); err != nil {
		return nil, pumps, err
	}
	f.Files[2] = f.Files[1]
	if c.log == nil {
		if f.Files[2], err = add(out[1]); err != nil {
			return nil, pumps, err
		}
	}
	if c.spec.Shell {
		if f.Extra, err = add(&c.shell); err != nil {
			return nil, pumps, err
		}
		if f.Args, err = c.shellArgs(f.Extra); err != nil {
			return nil, pumps, err
		}
	}
	f.Files[0] = s.null
	if c.in != nil {
		r, w, err := s.pipe(c.spec.UID, c.spec.GID)
		if err != nil {
			return nil, pumps, err
		}
		theirs = append(theirs, r)
		c.in.begin(w, func(work func()) {
			if s.guard("input of command "+c.id, work) != nil {
				c.in.cutOff()
			}
		})
		f.Files[0] = r
	}
	child, err := s.starter.Start(f)
	_ = s.dir.Close() // the command has started or never will
	return child, pumps, err
}

// shellArgs returns the arguments of a shell that runs the line and then reports its state.
func (c *command) shellArgs(pipe *os.File) ([]string, error) {
	return shellstate.Command(c.spec.Args[0], fork.ExtraDescriptor, pipe)
}

// endedWithInput is why a command has no exit code of its own. Its earlier changes stay.
const endedWithInput = "its input broke off before its end, so the command was killed; run it again with another id"

func (c *command) inputCut() bool { return c.in != nil && c.in.isCut() }

func (c *command) stopInput() {
	if c.in != nil {
		c.in.stop()
	}
}

// counted adds the size of the command's output to a result.
func (c *command) counted(r wire.Result) wire.Result {
	if c.log != nil {
		r.StdoutBytes, r.Dropped = c.log.Counts()
		return r
	}
	var dropped [2]bool
	r.StdoutBytes, _, dropped[0] = c.streams[0].counts()
	r.StderrBytes, _, dropped[1] = c.streams[1].counts()
	r.Dropped = dropped[0] || dropped[1]
	return r
}

func startCode(err error) int {
	var step *fork.Error
	if errors.As(err, &step) && !step.InDirectory() && errors.Is(err, unix.ENOENT) {
		return exitNotFound
	}
	return exitCannotStart
}

func exitCode(s unix.WaitStatus) int {
	if s.Signaled() {
		return 128 + int(s.Signal())
	}
	return s.ExitStatus()
}
