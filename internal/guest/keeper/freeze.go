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
	// standLimit is how long programs may take to stop: they may have to finish a system call.
	standLimit = 5 * time.Second
	// freezeLimit is the longest time that a sandbox stays frozen. endedLimit applies once its programs have ended: a
	// backend without a disk saves /data before a stop.
	freezeLimit = 2 * time.Minute
	endedLimit  = 10 * time.Minute
	// shutLimit is how long starting commands may take to finish their start.
	shutLimit = 100 * time.Millisecond
	// stopGrace is the time for programs to end, out of the ten seconds that the engine grants.
	stopGrace = 8 * time.Second
)

// freezer freezes all programs of the sandbox. No command starts meanwhile.
type freezer struct {
	freezeLock *sync.RWMutex
	spared     func() map[int]bool
	guard      func(what string, work func()) (panicked any) // of the keeper

	mu    sync.Mutex // guards the fields below
	on    bool
	freed chan struct{} // closed at the end of the current verifier; nil without one
	stood map[int]bool  // stopped before
	timer *time.Timer
}

// programs returns all processes except this program's own.
func (s *freezer) programs() []int {
	table, own := proc.All(), s.spared()
	found := make([]int, 0, len(table))
	for pid := range table {
		if !own[pid] {
			found = append(found, pid)
		}
	}
	return found
}

// freeze stops all programs, and returns once they are stopped. With end, it ends them first.
func (s *freezer) freeze(end bool) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.on && s.freed != nil {
		return errors.New("the sandbox is frozen for a verifier: wait for its end")
	}
	if s.on {
		return errors.New("the sandbox is already frozen")
	}
	s.freezeLock.Lock()
	s.on, s.stood = true, map[int]bool{}
	limit := freezeLimit
	if end {
		limit = endedLimit
	}
	s.timer = time.AfterFunc(limit, func() { s.guard("thaw", s.thaw) })
	frozen := false
	defer func() { // also after a panic
		if !frozen {
			s.release()
		}
	}()
	if end {
		s.end()
		frozen = true
		return nil
	}
	for _, pid := range s.programs() {
		s.stood[pid] = proc.IsStopped(pid)
	}
	err := s.stop()
	frozen = err == nil
	return err
}

func (s *freezer) stop() error {
	for limit := time.Now().Add(standLimit); ; time.Sleep(time.Millisecond) {
		running := 0
		for _, pid := range s.programs() {
			if !proc.IsStopped(pid) {
				_ = unix.Kill(pid, unix.SIGSTOP) // a process that is gone does not run
				running = pid
			}
		}
		if running == 0 {
			return nil
		}
		if time.Now().After(limit) {
			return fmt.Errorf("process %d did not stop within %s", running, standLimit)
		}
	}
}

// end asks all programs to end, and kills those that do not.
func (s *freezer) end() {
	for _, pid := range s.programs() {
		_ = unix.Kill(pid, unix.SIGTERM) // a process that is gone has ended
	}
	for limit := time.Now().Add(stopGrace); time.Now().Before(limit); time.Sleep(5 * time.Millisecond) {
		if len(s.programs()) == 0 {
			return
		}
	}
	proc.KillAll(s.programs, time.Now().Add(killTime))
}

// shut prevents command starts until the returned function is called. A frozen sandbox starts none anyway.
func (s *freezer) shut() (open func()) {
	for limit := time.Now().Add(shutLimit); !s.freezeLock.TryLock(); time.Sleep(time.Millisecond) {
		if time.Now().After(limit) {
			return func() {}
		}
	}
	return s.freezeLock.Unlock
}

// thaw continues what freeze has stopped.
func (s *freezer) thaw() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.on && s.freed == nil {
		s.release()
	}
}

func (s *freezer) release() {
	s.timer.Stop()
	stood := s.stood
	s.on, s.stood = false, nil
	defer s.freezeLock.Unlock()
	for _, pid := range s.programs() {
		if !stood[pid] {
			_ = unix.Kill(pid, unix.SIGCONT) // a process that is gone is fine
		}
	}
}
