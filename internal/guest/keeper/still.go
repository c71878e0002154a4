//go:build linux

package keeper

import (
	"errors"
	"fmt"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/guest/proc"
)

const (
	// standLimit is how long programs may take to stop: one in a system call ends that first.
	standLimit = 5 * time.Second
	// stillLimit is how long a sandbox stands still at most.
	stillLimit = 2 * time.Minute
	// shutLimit is how long commands that start already may take to do so.
	shutLimit = 100 * time.Millisecond
	// stopGrace is what programs get to end, of the ten seconds that the engine grants.
	stopGrace = 8 * time.Second
)

// still lets all programs of the sandbox stand still. No command starts meanwhile.
type still struct {
	gate   *sync.RWMutex
	spared func() map[int]bool

	mu    sync.Mutex // guards what follows
	on    bool
	freed chan struct{} // closed once the verifier has ended that it stands still for; nil without one
	stood map[int]bool  // what stood before
	timer *time.Timer
}

// programs are all processes but this program's own.
func (s *still) programs() []int {
	table, own := proc.All(), s.spared()
	found := make([]int, 0, len(table))
	for pid := range table {
		if !own[pid] {
			found = append(found, pid)
		}
	}
	return found
}

// freeze stops all programs, and returns once they stand. With end, it ends them first.
func (s *still) freeze(end bool) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.on && s.freed != nil {
		return errors.New("a verifier runs, and the sandbox stands still for it: wait for its end")
	}
	if s.on {
		return errors.New("the sandbox stands still already")
	}
	s.gate.Lock()
	s.on, s.stood = true, map[int]bool{}
	s.timer = time.AfterFunc(stillLimit, s.thaw)
	if end {
		s.end()
		return nil
	}
	for _, pid := range s.programs() {
		s.stood[pid] = proc.Standing(pid)
	}
	if err := s.stop(); err != nil {
		s.release()
		return err
	}
	return nil
}

func (s *still) stop() error {
	for limit := time.Now().Add(standLimit); ; time.Sleep(time.Millisecond) {
		running := 0
		for _, pid := range s.programs() {
			if !proc.Standing(pid) {
				_ = unix.Kill(pid, unix.SIGSTOP) // one that is gone does not run
				running = pid
			}
		}
		if running == 0 {
			return nil
		}
		if time.Now().After(limit) {
			return fmt.Errorf("process %d does not stop within %s", running, standLimit)
		}
	}
}

// end asks all programs to end, and kills those that do not.
func (s *still) end() {
	for _, pid := range s.programs() {
		_ = unix.Kill(pid, unix.SIGTERM) // one that is gone has ended
	}
	for limit := time.Now().Add(stopGrace); time.Now().Before(limit); time.Sleep(5 * time.Millisecond) {
		if len(s.programs()) == 0 {
			return
		}
	}
	proc.KillAll(s.programs, time.Now().Add(killTime))
}

// shut lets no command start until the returned function is called. Where the sandbox stands still none starts anyway.
func (s *still) shut() (open func()) {
	for limit := time.Now().Add(shutLimit); !s.gate.TryLock(); time.Sleep(time.Millisecond) {
		if time.Now().After(limit) {
			return func() {}
		}
	}
	return s.gate.Unlock
}

// thaw continues what freeze has stopped.
func (s *still) thaw() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.on && s.freed == nil {
		s.release()
	}
}

func (s *still) release() {
	s.timer.Stop()
	for _, pid := range s.programs() {
		if !s.stood[pid] {
			_ = unix.Kill(pid, unix.SIGCONT) // one that is gone needs none
		}
	}
	s.on, s.stood = false, nil
	s.gate.Unlock()
}
