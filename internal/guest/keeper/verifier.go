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

// A verifier is a command whose result code of the sandbox cannot influence but by its files. It has a user of its own, and
// nothing of the sandbox runs beside it: no command starts, all programs are stopped, and the kernel's clocks must say
// afterwards that none of them has run. SIGSTOP alone is no proof: the kernel continues a program whose timer or watched file
// sends SIGCONT. Where one has run, there is an error instead of a result.

const (
	// turnPause is how often a command looks whether the sandbox still stands still.
	turnPause = 5 * time.Millisecond
	// lookPause is between two looks at programs that are being stopped. They stand once calmLooks in a row have seen no
	// change.
	lookPause = 4 * time.Millisecond
	calmLooks = 3
	// waitPatience is how long a program may wait in the kernel, without running, until that counts as standing: a child
	// that was stopped may hold up its parent for good.
	waitPatience = time.Second
	// maxAgain is how often a program may run after it stood before it is killed. One that others continue does so once
	// or twice, until those stand. stopPatience is how long a program may run before it first stands: one in a call of
	// the kernel ends that first.
	maxAgain     = 5
	stopPatience = 3 * time.Second
	// watchPause is how often the clocks are read while a verifier runs.
	watchPause = 20 * time.Millisecond
	// verifierRoom is how many processes and threads a verifier needs at least, until it runs its program and beside it.
	verifierRoom = 16
	// cleanTime bounds the removal of what a verifier left in its directory.
	cleanTime = 10 * time.Second
)

const (
	endedOnRequest = "the command was ended on request"
	stoodStill     = "the sandbox stood still, for a verifier or to be saved, for as long as the command had to end: " +
		"it was not started; ask again"
)

// turn calls try until it succeeds. It gives up at the command's timeout, or once that was ended on request.
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

// enter enters the gate of commands that start. It fails as turn does.
func (c *command) enter(gate *sync.RWMutex, asked time.Time) (wire.Result, bool) {
	return c.turn(asked, gate.TryRLock)
}

// groups are the supplementary groups of the command.
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
		c.spec.Timeout = stillLimit
	}
	asked := time.Now()
	if r, taken := c.turn(asked, k.still.take); !taken {
		c.stopInput()
		return c.counted(r)
	}
	h := newHold(k.still)
	defer h.release()
	lost := time.AfterFunc(c.spec.Timeout+standLimit+3*killTime, func() {
		h.fail(errors.New("the verifier could not be ended"))
		h.release()
	})
	defer lost.Stop()
	if err := errors.Join(h.settle(), roomBeside(s.pids)); err != nil {
		c.stopInput()
		why := "make the sandbox stand still: " + err.Error()
		return c.counted(wire.Result{Problem: wire.ProblemFailed, Message: why, Duration: time.Since(asked)})
	}
	s.gate = new(sync.RWMutex) // it is its turn
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

// roomBeside refuses a verifier that could not start its processes: how it fails then is not its result.
func roomBeside(pids int) error {
	if left := pids - proc.Threads(); pids > 0 && left < verifierRoom {
		return fmt.Errorf("the programs that are stopped leave %d of %d processes, and a verifier needs %d: end some of them",
			max(left, 0), pids, verifierRoom)
	}
	return nil
}

// clean removes what the verifier left in its own directory, as the verifier's user. No other process of that user runs.
func (c *command) clean(s starts) error {
	root, err := os.Open("/")
	if err != nil {
		return err
	}
	child, err := fork.Start(fork.Command{
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

// endVerifiers ends the verifiers that run or wait, so that the sandbox can go on without them.
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
			k.logf("verifier %s survives", c.id)
		}
	}
}

// take makes the sandbox stand still for a verifier, unless it does so already: no command starts from then on.
func (s *still) take() bool {
	s.mu.Lock()
	if s.on {
		s.mu.Unlock()
		return false
	}
	s.on, s.freed = true, make(chan struct{})
	s.mu.Unlock()
	s.gate.Lock()
	return true
}

// free lets commands start again.
func (s *still) free() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.on = false
	close(s.freed)
	s.freed = nil
	s.gate.Unlock()
}

// spares waits while the sandbox stands still for a verifier: a program that is killed meanwhile could not be told from
// one that has run and ended.
func (s *still) spares() {
	s.mu.Lock()
	freed := s.freed
	s.mu.Unlock()
	if freed != nil {
		<-freed
	}
}

// hold keeps all programs stopped, from take to free.
type hold struct {
	still *still
	stood map[int]bool // what stood before
	stand map[int]seen // what was seen when all stood
	once  sync.Once

	mu       sync.Mutex // guards what follows
	cause    error
	released bool
}

func newHold(s *still) *hold {
	h := &hold{still: s, stood: map[int]bool{}}
	for _, pid := range h.programs() {
		h.stood[pid] = proc.Standing(pid)
	}
	return h
}

// programs are those of the sandbox. Supervisors that are ending are none.
func (h *hold) programs() []int {
	return slices.DeleteFunc(h.still.programs(), func(pid int) bool { return proc.HasUser(pid, guest.KeeperID) })
}

// release continues all that did not stand before.
func (h *hold) release() {
	h.once.Do(func() {
		h.mu.Lock()
		h.released = true
		h.mu.Unlock()
		for _, pid := range h.programs() {
			if !h.stood[pid] {
				_ = unix.Kill(pid, unix.SIGCONT) // one that is gone needs none
			}
		}
		h.still.free()
	})
}

func (h *hold) fail(err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.cause == nil {
		h.cause = err
	}
}

// seen is what a look saw of a program.
type seen struct {
	motion proc.Motion
	ran    time.Duration
}

// settle returns once all programs stand. Those that continue themselves are killed: one that has run again and again
// after it stood, and one that runs on for long although it is stopped all the time.
func (h *hold) settle() error {
	var before map[int]seen
	again := map[int]int{}
	calm, calmFrom := 0, time.Now()
	for began := time.Now(); ; time.Sleep(lookPause) {
		now, most := h.look()
		if calm++; most == proc.Moves || before == nil || !maps.EqualFunc(now, before, func(a, b seen) bool { return a.ran == b.ran }) {
			calm, calmFrom = 0, time.Now()
		}
		if calm >= calmLooks && (most == proc.Stands || time.Since(calmFrom) > waitPatience) {
			h.stand = now
			return nil
		}
		took := time.Since(began)
		if took > standLimit {
			return fmt.Errorf("they do not stand within %s", standLimit)
		}
		for pid, is := range now {
			was, known := before[pid]
			if !known || was.ran == is.ran {
				continue
			}
			if was.motion == proc.Stands {
				again[pid]++
			}
			if again[pid] > maxAgain || took > stopPatience {
				_ = unix.Kill(pid, unix.SIGKILL) // one that is gone is what we want
			}
		}
		before = now
	}
}

// look stops the programs that do not stand, and returns what it saw, and the most that one of them did.
func (h *hold) look() (all map[int]seen, most proc.Motion) {
	all = map[int]seen{}
	for _, pid := range h.programs() {
		motion := proc.MotionOf(pid)
		if motion != proc.Stands {
			_ = unix.Kill(pid, unix.SIGSTOP) // one that is gone does not run
		}
		most = max(most, motion)
		if ran, err := proc.Ran(pid); err == nil {
			all[pid] = seen{motion, ran}
		}
	}
	return all, most
}

// watch does work, and ends the verifier early when a program runs meanwhile.
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
			if pid := h.moved(); pid != 0 {
				h.fail(errRan(pid))
				c.kill() // again, until it has begun and ended
			}
		}
	})
	defer watching.Wait()
	defer close(done)
	return work()
}

// moved returns a program that has run since all stood, 0 when none has.
func (h *hold) moved() int {
	for pid, was := range h.stand {
		if ran, err := proc.Ran(pid); err != nil || ran != was.ran {
			return pid
		}
	}
	return 0
}

// verdict returns why the verifier's result must not count, nil when it does. The caller has ended all of the verifier.
// Programs that have run although they stood are killed: the next verifier shall have a result.
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
		if !known || was.motion == proc.Stands { // else the kernel has ended a call of long before
			_ = unix.Kill(pid, unix.SIGKILL) // as above
		}
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.cause
}

func errRan(pid int) error {
	return fmt.Errorf("process %d of the sandbox ran or ended while the verifier ran, so its result does not count: ask again", pid)
}
