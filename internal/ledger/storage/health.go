package storage

import (
	"context"
	"sync"
	"time"

	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// Fault is a problem of an open ledger.
type Fault string

// The faults.
const (
	FaultNone Fault = ""
	// FaultLost: the files were deleted or replaced while this program used them. All writes are refused
	// until they are back.
	FaultLost Fault = "lost"
	// FaultDamaged: the database is damaged. All writes are refused until the program starts on an intact
	// one.
	FaultDamaged Fault = "damaged"
	// FaultFull: the disk was full a moment ago. With a reserve, only essential writes are allowed until
	// there is space.
	FaultFull Fault = "full"
	// FaultReadOnly: the database accepted no writes a moment ago.
	FaultReadOnly Fault = "read_only"
)

// Faults lists all faults, for metrics.
var Faults = []Fault{FaultLost, FaultDamaged, FaultFull, FaultReadOnly}

// faultFor is how long a fault lasts after the database's last refusal. A small write can succeed on a disk
// that has no space for others.
const faultFor = 10 * time.Second

// health is the known faults of a store.
type health struct {
	mu      sync.Mutex // guards what follows
	lost    error
	damaged error
	// low: the reserve is in use.
	low bool
	// passing is the latest transient fault, seen at passingAt.
	passing      Fault
	passingAt    time.Time
	passingCause error
}

// Fault returns the current fault and its cause, or FaultNone and nil.
func (s *Store) Fault() (Fault, error) {
	s.restoreReserve()
	h := &s.health
	h.mu.Lock()
	defer h.mu.Unlock()
	switch {
	case h.damaged != nil:
		return FaultDamaged, h.damaged
	case h.lost != nil:
		return FaultLost, h.lost
	case h.low:
		return FaultFull, errLow
	case h.passing != FaultNone && s.now().Sub(h.passingAt) < faultFor:
		return h.passing, h.passingCause
	}
	return FaultNone, nil
}

var errLow = &sandbox.Error{
	Code: sandbox.Unavailable,
	Message: "the ledger's disk is full: only writes that end leases are allowed; free disk space, and the rest " +
		"resumes on its own",
}

// Ready reports whether the ledger can be read and written: it changes an unused column. Errors: Unavailable, with the
// reason.
func (s *Store) Ready(ctx context.Context) error {
	if _, err := s.Fault(); err != nil {
		return err
	}
	return s.Write(ctx, workFunc(func(tx Session) error {
		return Error("writing to the ledger", DB(tx).Exec("UPDATE ledgers SET touched = touched + 1").Error)
	}))
}

// refusal returns why writes are refused, nil if they are allowed.
func (s *Store) refusal() error {
	s.health.mu.Lock()
	lost, damaged := s.health.lost, s.health.damaged
	s.health.mu.Unlock()
	if damaged != nil {
		return damaged
	}
	if lost != nil { // the files may be back
		return s.checkFiles()
	}
	return nil
}

// refusalOf returns why one job is refused, nil if it is allowed.
func (s *Store) refusalOf(ctx context.Context) error {
	if isEssential(ctx) || !s.restoreReserve() {
		return nil
	}
	return errLow
}

// checkFiles returns an error if the ledger's files were deleted or replaced while this program used them.
func (s *Store) checkFiles() error {
	err := s.db.intact()
	h := &s.health
	h.mu.Lock()
	was := h.lost
	h.lost = err
	h.mu.Unlock()
	switch {
	case err != nil && was == nil:
		s.log.Error("ledger: its files were deleted or replaced while this program used them; all writes are refused",
			"error", err)
	case err == nil && was != nil:
		s.log.Info("ledger: its files are back")
	}
	return err
}

// note records what a failure says about the database. It reports whether the database is damaged.
func (s *Store) note(err error) (damaged bool) {
	if err == nil {
		return false
	}
	fault := s.db.fault(err)
	h := &s.health
	h.mu.Lock()
	defer h.mu.Unlock()
	switch fault {
	case FaultNone:
		return false
	case FaultDamaged:
		if h.damaged == nil {
			h.damaged = sandbox.Errorf(sandbox.Unavailable, "the ledger is damaged: %w; all writes are refused. Stop this "+
				"program, restore a backup (sandbox restore), and start it again", err)
			s.log.Error("ledger: it is damaged; all writes are refused", "error", err)
		}
		return true
	}
	h.passing, h.passingAt, h.passingCause = fault, s.now(), sandbox.Errorf(sandbox.Unavailable,
		"the database refused a write less than %s ago: %w", faultFor, err)
	if fault == FaultFull && !h.low && s.reserve.Release() {
		h.low = true
		s.log.Error("ledger: the disk is full; only writes that end leases are allowed until there is space", "error", err)
	}
	return false
}

// restoreReserve creates the reserve again if it is in use and there is space. It reports whether the reserve
// is still in use.
func (s *Store) restoreReserve() (low bool) {
	h := &s.health
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.low && s.reserve.Restore() {
		h.low, h.passing = false, FaultNone
		s.log.Info("ledger: the disk has space again")
	}
	return h.low
}
