//go:build linux

package keeper

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"sync"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/guest"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/guest/deadline"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/guest/lease"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/guest/link"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/guest/wire"
)

// assignment is the lease of a sandbox that was created for a warm pool.
type assignment struct {
	mu      sync.Mutex  // guards the fields below
	lease   *wire.Lease // nil while the sandbox waits
	inForce bool
}

// ownLeaseDir gives the lease directory to process 1. Sandbox code never runs as its user.
func ownLeaseDir(dir string) error {
	if err := errors.Join(os.Chmod(dir, 0o700), os.Lchown(dir, guest.KeeperID, guest.KeeperID)); err != nil {
		return fmt.Errorf("take the lease directory: %w", err)
	}
	return nil
}

// resume applies the lease that the sandbox had before it was stopped.
func (p *process) resume() error {
	b, err := os.ReadFile(lease.File)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	var l wire.Lease
	if err == nil {
		err = json.Unmarshal(b, &l)
	}
	if err == nil {
		p.assigned.lease = &l
		err = p.enforce(l)
	}
	if err != nil {
		return fmt.Errorf("resume the lease: %w", err)
	}
	p.assigned.inForce = true
	return nil
}

// assign gives the sandbox to a lease, once. It answers once the deadline and config.json are in force, even if they
// already were. A failed assignment may be repeated.
func (p *process) assign(l *wire.Lease) link.Message {
	refuse := func(problem, text string) link.Message { return link.Message{Problem: problem, Text: text} }
	if l == nil || l.ID == "" || l.Ends.At.IsZero() {
		return refuse(wire.ProblemInvalid, "the lease has no id or no end")
	}
	if !p.cfg.Pooled {
		return refuse(wire.ProblemConflict, "the sandbox was not created for a warm pool")
	}
	a := &p.assigned
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.lease != nil && (a.lease.ID != l.ID || a.lease.Config != l.Config) {
		return refuse(wire.ProblemConflict, "the sandbox is already assigned to "+a.lease.ID)
	}
	if a.inForce {
		return link.Message{}
	}
	if a.lease == nil {
		if err := recordLease(l); err != nil {
			return refuse(wire.ProblemFailed, err.Error())
		}
		a.lease = l
	}
	if err := p.enforce(*a.lease); err != nil {
		return refuse(wire.ProblemFailed, err.Error())
	}
	a.inForce = true
	return link.Message{}
}

// enforce sets the deadline, writes config.json and sets the variables of all commands. The deadline is never
// later than the initial one.
func (p *process) enforce(l wire.Lease) error {
	clocks, err := deadline.ReadClocks()
	if err != nil {
		return err
	}
	if left := clocks.Left(l.Ends); left < clocks.Left(p.cfg.Ends) {
		if err := p.timer.Set(left); err != nil {
			return err
		}
	}
	if err := p.cfg.as(p.cfg.UID, p.cfg.GID, func() error { return writeConfig(l.Config) }); err != nil {
		return fmt.Errorf("write %s: %w", configFile, err)
	}
	return lease.SetEnviron(l.Env) // the next broker inherits them
}

// recordLease stores the lease for a start after a stop. The file appears atomically.
func recordLease(l *wire.Lease) error {
	b, err := json.Marshal(l)
	if err != nil {
		return fmt.Errorf("record the lease: %w", err)
	}
	f, err := os.CreateTemp(guest.LeaseDir, ".lease-*")
	if err != nil {
		return fmt.Errorf("record the lease: %w", err)
	}
	_, err = f.Write(b)
	if l.Sync {
		err = errors.Join(err, f.Sync())
	}
	if err = errors.Join(err, f.Close()); err == nil {
		err = os.Rename(f.Name(), lease.File)
	}
	if err != nil {
		return fmt.Errorf("record the lease: %w", errors.Join(err, os.Remove(f.Name())))
	}
	return nil
}

// assign answers once the lease is in force.
func (s *session) assign(m link.Message) {
	if s.k.assign == nil {
		s.answer(m, link.Message{Problem: wire.ProblemConflict, Text: "process 1 accepts no lease"})
		return
	}
	s.answer(m, s.k.assign(m.Lease))
}
