package ledger

import (
	"maps"
	"time"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/ledger/micro"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/ledger/storage"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// CompanionStates are the states of the companions of a sandbox, by name.
type CompanionStates map[string]CompanionState

// CompanionState is the state of a companion.
type CompanionState struct {
	State sandbox.CompanionState `json:"state"`
	Since time.Time              `json:"since"`
	// Restarts counts its restarts. If RestartAt is set, it is started again then.
	Restarts  int64     `json:"restarts,omitempty"`
	RestartAt time.Time `json:"restart_at,omitzero"`
	Message   string    `json:"message,omitempty"`
	// CheckAt is the time of its next health check, if planned. FailedChecks counts consecutive failed checks while it was
	// ready.
	CheckAt      time.Time `json:"check_at,omitzero"`
	FailedChecks int       `json:"failed_checks,omitempty"`
	// CPUMark is the last counted reading of its CPU time since its latest start.
	CPUMark micro.Span `json:"cpu_mark,omitempty"`
}

// Runs reports whether its program was healthy and has not been seen ended since.
func (c CompanionState) Runs() bool {
	return c.State == sandbox.CompanionReady || c.State == sandbox.CompanionUnhealthy
}

// Measured reports whether its CPU time is read. It is if the companion runs and does not wait for a restart.
func (c CompanionState) Measured() bool { return c.Runs() && c.RestartAt.IsZero() }

// SetCompanion replaces the state of a companion.
func (s *Sandbox) SetCompanion(name string, state CompanionState) {
	all := make(CompanionStates, len(s.Companions)) // rows share maps
	maps.Copy(all, s.CompanionStates)
	all[name] = state
	s.CompanionStates = all
}

// CompanionEnters records that a companion enters a state. It keeps the number of restarts and the counted usage.
func (s *Sandbox) CompanionEnters(name string, state sandbox.CompanionState, message string, now micro.Time) {
	was := s.CompanionStates[name]
	s.SetCompanion(name, CompanionState{State: state, Since: now.Time(), Restarts: was.Restarts, Message: message,
		CPUMark: was.CPUMark})
}

// CompanionStarted records that a companion has started and is ready. Its CPU time counts from zero again.
func (s *Sandbox) CompanionStarted(name string, now micro.Time) {
	s.CompanionEnters(name, sandbox.CompanionReady, "", now)
	is := s.CompanionStates[name]
	is.CPUMark = 0
	s.SetCompanion(name, is)
}

// CompanionRestarts is CompanionEnters for a companion that is started again at a time.
func (s *Sandbox) CompanionRestarts(name string, state sandbox.CompanionState, message string, at, now micro.Time) {
	s.CompanionEnters(name, state, message, now)
	is := s.CompanionStates[name]
	is.Restarts++
	is.RestartAt = at.Time()
	s.SetCompanion(name, is)
}

// CompanionsStartAgain records that all companions are started again now. This does not count as a restart.
func (s *Sandbox) CompanionsStartAgain(now micro.Time) {
	for _, name := range s.Companions.Names() {
		s.CompanionEnters(name, sandbox.CompanionStarting, "", now)
		is := s.CompanionStates[name]
		is.RestartAt = now.Time()
		s.SetCompanion(name, is)
	}
}

// NextCompanionRestart returns when the next companion is started again, Never if none is.
func (s *Sandbox) NextCompanionRestart() micro.Time {
	next := micro.Never
	for _, is := range s.CompanionStates {
		if !is.RestartAt.IsZero() {
			next = min(next, micro.At(is.RestartAt))
		}
	}
	return next
}

// CompanionStatuses returns the companions for readers, in the order of their names.
func (s *Sandbox) CompanionStatuses() (list []sandbox.CompanionStatus) {
	for _, name := range s.Companions.Names() {
		is := s.CompanionStates[name]
		status := sandbox.CompanionStatus{Name: name, Image: s.Companions[name].Image, State: is.State, Since: is.Since,
			Restarts: is.Restarts, Message: is.Message}
		if is.State == "" {
			status.State, status.Since = sandbox.CompanionStarting, s.LeasedAt.Time()
		}
		list = append(list, status)
	}
	return list
}

// SandboxesWithCompanions returns the leased sandboxes of an instance that are awake, wanted and have companions.
func (tx *Tx) SandboxesWithCompanions(instance string) ([]Sandbox, error) {
	return storage.Find[Sandbox](tx.db.Where("instance = ? AND phase = 'awake' AND phase <> 'gone' "+
		"AND desired = 'present' AND lease_id IS NOT NULL AND companion_memory_mb > 0", instance).Order("id"))
}
