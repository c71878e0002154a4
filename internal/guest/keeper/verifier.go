//go:build linux

package keeper

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/guest"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/guest/fork"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/guest/proc"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/guest/wire"
)

// A verifier is a command that sandbox code can influence only through files. It has a separate user, and
// nothing else in the sandbox runs at the same time: no command starts, all programs are stopped, and
// afterwards the kernel's clocks must show that none has run. SIGSTOP alone is not enough: the kernel
// continues a program whose timer or watched file sends SIGCONT. If a program has run, there is an error and
// no result.

const (
	// turnPause is the interval at which a command checks whether the sandbox is still frozen.
	turnPause = 5 * time.Millisecond
	// lookPause is the interval between checks of programs that are being stopped. They count as stopped once
	// calmLooks checks in a row have seen no change.
	lookPause = 4 * time.Millisecond
	calmLooks = 3
	// waitPatience is how long a program must wait in the kernel without running to count as stopped: a stopped child may
	// block its parent forever.
	waitPatience = time.Second
	// maxAgain is how often a program may run after it was stopped before it is killed. A program that others
	// continue runs once or twice, until the others are stopped. stopPatience is how long a program may run
	// before it first stops: it may have to finish a system call.
	maxAgain     = 5
	stopPatience = 3 * time.Second
	// watchPause is the interval at which the clocks are read while a verifier runs.
	watchPause = 20 * time.Millisecond
	// verifierRoom is the least number of free processes and threads for a verifier's start and run.
	verifierRoom = 16
	// cleanTime limits the removal of a verifier's directory.
	cleanTime = 10 * time.Second
)

const (
	endedOnRequest = "the command was ended on request"
	stoodStill     = "the sandbox was frozen, for a verifier or a snapshot, for the whole timeout of the command: " +
		"it was not started; retry"
)

// turn calls try until it succeeds. It gives up at the command's timeout, or if the command is ended on
// request.
func (c *command) turn(asked time.Time, try func() bool) (wire.Result, bool) {
	for ; !try(); time.Sleep(turnPause) {
		switch took := time.Since(asked); {
		case c.killed.Load():
			return wire.Result{Problem: wire.ProblemFailed, Message: endedOnRequest, Duration: took}, false
		case c.spec.Timeout > 0 && took > c.spec.Timeout:
			return wire.Result{Problem: wire.ProblemBusy, Message: stoodStill, Duration: took}, false
		}
	}
	return wire.Result{}, true
}

// enter enters the gate for starting commands. It fails like turn.
func (c *command) enter(gate *sync.RWMutex, asked time.Time) (wire.Result, bool) {
	return c.turn(asked, gate.TryRLock)
}

// groups returns the supplementary groups of the command.
func (c *command) groups() []uint32 {
	if c.spec.Verifier == nil {
		return nil
	}
	return c.spec.Verifier.Groups
}

// runVerifier runs a verifier to its end.
func (k *keeper) runVerifier(c *command, s starts) wire.Result {
	if c.spec.Failure != 0 {
		return c.run(s)
	}
	if c.spec.Timeout <= 0 {
		c.spec.Timeout = freezeLimit
	}
	asked := time.Now()
	if r, taken := c.turn(asked, k.freezer.take); !taken {
		c.stopInput()
		return c.counted(r)
	}
	h := newHold(k.freezer)
	defer h.release()
	lost := time.AfterFunc(c.spec.Timeout+standLimit+3*killTime, func() {
		h.fail(errors.New("the verifier could not be ended"))
		k.guard("release after a verifier", h.release)
	})
	defer lost.Stop()
	if err := errors.Join(h.settle(), roomBeside(s.pids)); err != nil {
		c.stopInput()
		why := "freeze the sandbox: " + err.Error()
		return c.counted(wire.Result{Problem: wire.ProblemFailed, Message: why, Duration: time.Since(asked)})
	}
	s.freezeLock = new(sync.RWMutex) // the verifier's own start is allowed
	c.spec.Timeout -= min(time.Since(asked), c.spec.Timeout-1)
	r := h.watch(c, func() wire.Result { return c.run(s) })
	proc.KillAll(func() []int { return proc.OfUser(c.spec.UID) }, time.Now().Add(killTime))
	if err := c.clean(s); err != nil {
		k.logf("remove what verifier %s left: %v", c.id, err)
	}
	if err := h.verdict(); err != nil {
		return c.counted(wire.Result{Problem: wire.ProblemFailed, Message: err.Error(), Duration: r.Duration})
	}
	return r
}

// roomBeside refuses a verifier that could not start its processes, because that failure would not be a valid result.
func roomBeside(pids int) error {
	if left := pids - proc.Threads(); pids > 0 && left < verifierRoom {
		return fmt.Errorf("the stopped programs leave %d of %d processes, but a verifier needs %d: end some programs",
			max(left, 0), pids, verifierRoom)
	}
	return nil
}

// clean removes the verifier's directory as the verifier's user. No other process of that user runs.
func (c *command) clean(s starts) error {
	root, err := os.Open("/")
	if err != nil {
		return err
	}
	child, err := s.starter.Start(fork.Command{
		Path: c.spec.Path, Args: c.spec.Verifier.Clean, Dir: root, Files: [3]*os.File{s.null, s.null, s.null},
		UID: c.spec.UID, GID: c.spec.GID, Nice: s.nice, Processes: s.processes(c.spec.UID), OOMScore: s.score,
	})
	if err = errors.Join(err, root.Close()); child == nil {
		return err
	}
	late := time.AfterFunc(cleanTime, func() { proc.KillTree(child.Supervisor, time.Now().Add(killTime)) })
	defer late.Stop()
	status, waitErr := child.Wait()
	if waitErr == nil && status != 0 {
		waitErr = fmt.Errorf("it ended with %d", exitCode(status))
	}
	return errors.Join(err, waitErr, child.Close())
}

// endVerifiers ends running and waiting verifiers, so that the sandbox can thaw.
func (k *keeper) endVerifiers() {
	var all []*command
	k.mu.Lock()
	for _, c := range k.commands {
		if c.spec.Verifier != nil {
			all = append(all, c)
		}
	}
	k.mu.Unlock()
	for _, c := range all {
		c.killed.Store(true)
		c.kill()
		select {
		case <-c.ended:
		case <-time.After(killTime):
			k.logf("verifier %s could not be killed", c.id)
		}
	}
}

// take freezes the sandbox for a verifier, unless it is already frozen. From then on no command starts.
func (s *freezer) take() bool {
	s.mu.Lock()
	if s.on {
		s.mu.Unlock()
		return false
	}
	s.on, s.freed = true, make(chan struct{})
	s.mu.Unlock()
	s.freezeLock.Lock()
	return true
}

// free lets commands start again.
func (s *freezer) free() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.on = false
	close(s.freed)
	s.freed = nil
	s.freezeLock.Unlock()
}

// spares waits while the sandbox is frozen for a verifier. A program killed meanwhile would look like one that has run
// and ended.
func (s *freezer) spares() {
	s.mu.Lock()
	freed := s.freed
	s.mu.Unlock()
	if freed != nil {
		<-freed
	}
}

// hold keeps all programs stopped, from take to free.
type hold struct {
	freezer *freezer
	stood   map[int]bool // stopped before
	stand   map[int]seen // the state when all were stopped
	once    sync.Once

	mu       sync.Mutex // guards the fields below
	cause    error
	released bool
}

func newHold(s *freezer) *hold {
	h := &hold{freezer: s, stood: map[int]bool{}}
	for _, pid := range h.programs() {
		h.stood[pid] = proc.IsStopped(pid)
	}
	return h
}

// programs returns the programs of the sandbox, without supervisors that are ending.
func (h *hold) programs() []int {
	return slices.DeleteFunc(h.freezer.programs(), func(pid int) bool { return proc.HasUser(pid, guest.KeeperID) })
}

// release continues all programs that were not stopped before.
func (h *hold) release() {
	h.once.Do(func() {
		h.mu.Lock()
		h.released = true
		h.mu.Unlock()
		for _, pid := range h.programs() {
			if !h.stood[pid] {
				_ = unix.Kill(pid, unix.SIGCONT) // a process that is gone is fine
			}
		}
		h.freezer.free()
	})
}

func (h *hold) fail(err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.cause == nil {
		h.cause = err
	}
}

// seen is the result of one check of a program.
type seen struct {
	motion proc.Motion
	ran    time.Duration
}

// settle returns once all programs are stopped. It kills programs that keep continuing: one that has run
// repeatedly after it was stopped, and one that runs for long although it is always being stopped.
func (h *hold) settle() error {
	var before map[int]seen
	again := map[int]int{}
	calm, calmFrom := 0, time.Now()
	for began := time.Now(); ; time.Sleep(lookPause) {
		now, most := h.look()
		if calm++; most == proc.Running || before == nil ||
			!maps.EqualFunc(now, before, func(a, b seen) bool { return a.ran == b.ran }) {
			calm, calmFrom = 0, time.Now()
		}
		if calm >= calmLooks && (most == proc.Stopped || time.Since(calmFrom) > waitPatience) {
			h.stand = now
			return nil
		}
		took := time.Since(began)
		if took > standLimit {
			return fmt.Errorf("its programs did not stop within %s", standLimit)
		}
		for pid, is := range now {
			was, known := before[pid]
			if !known || was.ran == is.ran {
				continue
			}
			if was.motion == proc.Stopped {
				again[pid]++
			}
			if again[pid] > maxAgain || took > stopPatience {
				_ = unix.Kill(pid, unix.SIGKILL) // a process that is gone is fine
			}
		}
		before = now
	}
}

// look stops the programs that are not stopped, and returns what it saw and the most active motion.
func (h *hold) look() (all map[int]seen, most proc.Motion) {
	all = map[int]seen{}
	for _, pid := range h.programs() {
		motion := proc.MotionOf(pid)
		if motion != proc.Stopped {
			_ = unix.Kill(pid, unix.SIGSTOP) // a process that is gone does not run
		}
		most = max(most, motion)
		if ran, err := proc.Ran(pid); err == nil {
			all[pid] = seen{motion, ran}
		}
	}
	return all, most
}

// watch does work, and ends the verifier early if a program runs meanwhile.
func (h *hold) watch(c *command, work func() wire.Result) wire.Result {
	done := make(chan struct{})
	var watching sync.WaitGroup
	watching.Go(func() {
		for {
			select {
			case <-done:
				return
			case <-time.After(watchPause):
			}
			p := h.freezer.guard("watch of a verifier", func() {
				if pid := h.moved(); pid != 0 {
					h.fail(errRan(pid))
					c.kill() // repeatedly, because it may just be starting
				}
			})
			if p != nil {
				h.fail(fmt.Errorf("process 1 failed to watch the sandbox: %v", p))
			}
		}
	})
	defer watching.Wait()
	defer close(done)
	return work()
}

// moved returns a program that has run since all were stopped, 0 if none has.
func (h *hold) moved() int {
	for pid, was := range h.stand {
		if ran, err := proc.Ran(pid); err != nil || ran != was.ran {
			return pid
		}
	}
	return 0
}

// verdict returns why the verifier's result does not count, nil if it does. The caller has ended the whole
// verifier. It kills programs that ran although they were stopped, so that the next verifier gets a result.
func (h *hold) verdict() error {
	h.mu.Lock()
	released, cause := h.released, h.cause
	h.mu.Unlock()
	if released {
		return cause
	}
	if pid := h.moved(); pid != 0 {
		h.fail(errRan(pid))
	}
	for _, pid := range h.programs() {
		was, known := h.stand[pid]
		ran, err := proc.Ran(pid)
		if err != nil || known && ran == was.ran {
			continue
		}
		h.fail(errRan(pid))
		if !known || was.motion == proc.Stopped { // otherwise the kernel only finished an earlier system call
			_ = unix.Kill(pid, unix.SIGKILL) // as above
		}
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.cause
}

func errRan(pid int) error {
	return fmt.Errorf(
		"process %d of the sandbox ran or ended while the verifier ran, so the result does not count: retry", pid)
}
