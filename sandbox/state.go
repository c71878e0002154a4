package sandbox

import (
	"fmt"
	"maps"
	"path"
	"regexp"
	"slices"
	"strings"
	"time"
	"unicode/utf8"
)

// StateDir is the directory of a sandbox that outlives its generation where its environment keeps
// state. StateLayout are its directories, which exist from the beginning; character.json lies beside them.
const StateDir = "/data"

// StateLayout are the directories of StateDir.
var StateLayout = []string{"campaign", "memory", "skills"}

// StateScope says whose state it is.
type StateScope string

// The scopes. With ScopeAgent the leases that one agent has in any environments share one state, as long as they
// are of one StateNamespace. The first of them that lives saves it; the others begin with a copy and save nothing.
const (
	ScopeAgentEnvironment StateScope = "agent_environment"
	ScopeAgent            StateScope = "agent"
)

// PersistFailure says what becomes of a sandbox whose state cannot be saved at its end.
type PersistFailure string

// What becomes of it. It is frozen in any case.
const (
	// PersistRetry keeps it for at most RetryFor, and tries again meanwhile.
	PersistRetry PersistFailure = "retry"
	// PersistDiscard destroys it after DiscardAttempts.
	PersistDiscard PersistFailure = "discard"
)

// DiscardAttempts is how often PersistDiscard tries: within some two seconds.
const DiscardAttempts = 3

// Defaults and bounds of what is kept.
const (
	DefaultCheckpointEvery = Duration(time.Minute)
	DefaultRetryFor        = Duration(24 * time.Hour)
	MaxRetryFor            = Duration(7 * 24 * time.Hour)
	DefaultStateLimitMB    = 256
	MaxStateLimitMB        = 10240
	// MaxSeedBytes bounds initial_state and skills together, names included.
	MaxSeedBytes = 1 << 20
)

// StateSpec says that an environment keeps /data from one generation to the next, and how.
type StateSpec struct {
	Scope            StateScope     `json:"scope,omitempty" enum:"agent_environment,agent" doc:"Whose state it is: of an agent in this environment, or of an agent wherever tokens with the same limit to environments lease for it. Default agent_environment."`
	CheckpointEvery  *Duration      `json:"checkpoint_every,omitempty" doc:"What commands and files changed is saved at most this often while the lease lives; 0s turns that off. Default 1m."`
	OnPersistFailure PersistFailure `json:"on_persist_failure,omitempty" enum:"retry,discard" doc:"What becomes of a sandbox whose last state cannot be saved. Default retry."`
	RetryFor         Duration       `json:"retry_for,omitempty" doc:"How long retry keeps the frozen sandbox. Default 24h, at most 168h."`
	SizeLimitMB      int64          `json:"size_limit_mb,omitempty" doc:"Largest state that is saved, unpacked, in MiB. Default 256, at most 10240." minimum:"0" maximum:"10240"`
}

// withDefaults returns the specification with its defaults filled in; none stays none.
func (s *StateSpec) withDefaults() *StateSpec {
	if s == nil {
		return nil
	}
	filled := *s
	orDefault(&filled.Scope, ScopeAgentEnvironment)
	orDefault(&filled.OnPersistFailure, PersistRetry)
	orDefault(&filled.RetryFor, DefaultRetryFor)
	orDefault(&filled.SizeLimitMB, DefaultStateLimitMB)
	if filled.CheckpointEvery == nil {
		every := DefaultCheckpointEvery
		filled.CheckpointEvery = &every
	}
	return &filled
}

// fields returns what is wrong with a specification whose defaults are filled in.
func (s *StateSpec) fields() (f []Field) {
	if s == nil {
		return nil
	}
	bad := func(name, problem string, args ...any) {
		f = append(f, Field{"state." + name, fmt.Sprintf(problem, args...)})
	}
	if s.Scope != ScopeAgentEnvironment && s.Scope != ScopeAgent {
		bad("scope", "must be agent_environment or agent, not %q", s.Scope)
	}
	if every := *s.CheckpointEvery; every != 0 && every < Duration(time.Second) {
		bad("checkpoint_every", "must be 0s (no checkpoints) or at least 1s")
	}
	if s.OnPersistFailure != PersistRetry && s.OnPersistFailure != PersistDiscard {
		bad("on_persist_failure", "must be retry or discard, not %q", s.OnPersistFailure)
	}
	if s.RetryFor < Duration(time.Second) || s.RetryFor > MaxRetryFor {
		bad("retry_for", "must be between 1s and %s", MaxRetryFor)
	}
	checkRange(bad, "size_limit_mb", s.SizeLimitMB, 1, MaxStateLimitMB)
	return f
}

// Key names the state of an agent in an environment: leases with one key share one state. The namespace counts
// for ScopeAgent only: an environment's own states are within reach of each token that may touch it.
func (s *StateSpec) Key(agentDID, environmentID string, n StateNamespace) string {
	if s.Scope == ScopeAgent {
		return n.key(agentDID)
	}
	return LeaseID(agentDID, environmentID)
}

// Sources are the keys whose states a lease may begin with that has none under its own: what the operator's leases
// have saved for the agent, and those of tokens for this environment alone. What of them was saved in an environment
// that the namespace does not allow is not for the lease.
func (s *StateSpec) Sources(agentDID, environmentID string, n StateNamespace) []string {
	if s.Scope != ScopeAgent {
		return nil
	}
	sources := []string{StateNamespace(nil).key(agentDID), StateNamespace{environmentID}.key(agentDID)}
	return slices.DeleteFunc(sources, func(key string) bool { return key == n.key(agentDID) })
}

// Limit is the largest state that is saved, in bytes, unpacked.
func (s *StateSpec) Limit() int64 { return s.SizeLimitMB << 20 }

// Seeded reports whether the sandboxes of an environment begin with files in StateDir.
func (s EnvironmentSpec) Seeded() bool {
	return s.State != nil || len(s.InitialState) > 0 || len(s.Skills) > 0
}

var skillSlug = regexp.MustCompile(`^[a-z0-9][a-z0-9_-]{0,62}$`)

// SkillFile is where a skill's prompt lies, relative to StateDir.
func SkillFile(slug string) string { return "skills/" + slug + "/prompt.md" }

// seedFields returns what is wrong with initial_state and skills.
func (s EnvironmentSpec) seedFields() (f []Field) {
	total := 0
	for _, name := range slices.Sorted(maps.Keys(s.InitialState)) {
		text := s.InitialState[name]
		total += len(name) + len(text)
		if problem := s.seedProblem(name, text); problem != "" {
			f = append(f, Field{"initial_state." + name, problem})
		}
	}
	for _, slug := range slices.Sorted(maps.Keys(s.Skills)) {
		text := s.Skills[slug]
		total += len(slug) + len(text)
		switch {
		case !skillSlug.MatchString(slug):
			f = append(f, Field{"skills." + slug, "the name must be 1 to 63 characters of a-z, 0-9, '_' and '-', and begin with a letter or digit"})
		case !utf8.ValidString(text):
			f = append(f, Field{"skills." + slug, "must be UTF-8 text"})
		}
	}
	if total > MaxSeedBytes {
		f = append(f, Field{"initial_state", fmt.Sprintf("holds %d bytes together with skills, and at most %d are allowed: put more into the image", total, MaxSeedBytes)})
	}
	return f
}

// seedProblem says why a file of initial_state cannot be written, "" when it can.
func (s EnvironmentSpec) seedProblem(name, text string) string {
	switch {
	case name == "" || len(name) > 255 || !utf8.ValidString(name) || strings.ContainsRune(name, 0):
		return "the name must be a path of 1 to 255 bytes of UTF-8, without NUL"
	case path.IsAbs(name) || path.Clean(name) != name || name == "." || name == ".." || strings.HasPrefix(name, "../"):
		return "the name must be a clean path relative to /data, such as character.json or memory/intro.md"
	case slices.Contains(StateLayout, name):
		return "is a directory of /data: name a file in it"
	case !utf8.ValidString(text):
		return "must be UTF-8 text"
	}
	for dir := path.Dir(name); dir != "."; dir = path.Dir(dir) {
		if _, isFile := s.InitialState[dir]; isFile {
			return fmt.Sprintf("lies in %s, which is a file of initial_state", dir)
		}
	}
	return ""
}

// LeaseState is where a lease's state stands, where its environment keeps one.
type LeaseState struct {
	// Key names the state: leases with one key share it.
	Key string `json:"key"`
	// Role is what this generation is to the state.
	Role StateRole `json:"role" enum:"waiting,holder,copy,done,lost"`
	// RestoredFrom is what the generation began with; nil is the environment's initial_state.
	RestoredFrom *SavedState `json:"restored_from,omitempty"`
	// SavedAt is the moment as of which this generation's state is saved, zero before.
	SavedAt time.Time `json:"saved_at,omitzero"`
	// UnsavedSince is set while changes are known that are not saved yet.
	UnsavedSince time.Time `json:"unsaved_since,omitzero"`
	// Error says why the last try to save failed, or what is waited for; FailingSince is when the
	// first try in a row failed. At GivesUpAt the sandbox of an ended lease is destroyed unsaved.
	Error        string    `json:"error,omitempty"`
	FailingSince time.Time `json:"failing_since,omitzero"`
	GivesUpAt    time.Time `json:"gives_up_at,omitzero"`
}

// StateRole is what a generation is to the state that its key names.
type StateRole string

// The roles. A generation has one from its first step on.
const (
	// RoleWaiting: it waits until the generation that holds the state has saved it.
	RoleWaiting StateRole = "waiting"
	// RoleHolder: it alone saves the state.
	RoleHolder StateRole = "holder"
	// RoleCopy: it began with a copy of what another lease of the agent holds, and saves nothing.
	RoleCopy StateRole = "copy"
	// RoleDone: it held the state, and has saved it for the last time.
	RoleDone StateRole = "done"
	// RoleLost: it held the state, and what it changed after SavedAt could not be saved.
	RoleLost StateRole = "lost"
)

// SavedState is a state as it was saved last.
type SavedState struct {
	Key           string `json:"key"`
	AgentDID      string `json:"agent_did"`
	EnvironmentID string `json:"environment_id"`
	// Generation and SandboxID are those that saved it.
	Generation int64  `json:"generation"`
	SandboxID  string `json:"sandbox_id"`
	// SavedAt is the moment as of which it was saved.
	SavedAt time.Time `json:"saved_at"`
	SHA256  string    `json:"sha256"`
	// Bytes is its size as it is stored, UnpackedBytes and Files what it holds.
	Bytes         int64 `json:"bytes"`
	UnpackedBytes int64 `json:"unpacked_bytes"`
	Files         int64 `json:"files"`
	// Skipped counts what was not saved: devices, sockets and the like.
	Skipped int64 `json:"skipped,omitempty"`
}

// StatesKept tells of the saved states of agents that all tokens shared before namespaces. They keep their keys, which
// are the operator's. A token with a limit begins with one that was saved in an environment that it may touch.
type StatesKept struct {
	States int64 `json:"states"`
	// Keys are the first of them, at most 100.
	Keys []string `json:"keys"`
}

// StateFilter selects saved states; empty fields select all.
type StateFilter struct {
	AgentDID      string
	EnvironmentID string
	// After is the key of the last state of the page before.
	After string
	// Limit is the page size, 1 to 1000; zero means 1000.
	Limit int
}
