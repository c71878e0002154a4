package sandbox

import (
	"fmt"
	"maps"
	"path"
	"slices"
	"strings"
	"time"
	"unicode/utf8"
)

// DataDir is the directory of a sandbox that survives its generation if the environment keeps snapshots.
// DataLayout lists its directories, which exist from the start; character.json is next to them.
const DataDir = "/data"

// DataLayout lists the directories in DataDir.
var DataLayout = []string{"campaign", "memory", "skills"}

// SnapshotScope says which leases share a snapshot.
type SnapshotScope string

// The scopes. With ScopeAgent, all leases of one agent in one SnapshotNamespace share a snapshot, in any
// environment. The first live lease saves it. The others start with a copy and save nothing.
const (
	ScopeAgentEnvironment SnapshotScope = "agent_environment"
	ScopeAgent            SnapshotScope = "agent"
)

// PersistFailure is the policy for a sandbox whose last snapshot cannot be saved.
type PersistFailure string

// The values. The sandbox is frozen in both cases.
const (
	// PersistRetry keeps it for at most RetryFor and retries.
	PersistRetry PersistFailure = "retry"
	// PersistDiscard destroys it after DiscardAttempts.
	PersistDiscard PersistFailure = "discard"
)

// DiscardAttempts is the number of attempts of PersistDiscard, within about two seconds.
const DiscardAttempts = 3

// Defaults and limits of snapshots.
const (
	DefaultCheckpointEvery = Duration(time.Minute)
	DefaultRetryFor        = Duration(24 * time.Hour)
	MaxRetryFor            = Duration(7 * 24 * time.Hour)
	DefaultSnapshotLimitMB = 256
	MaxSnapshotLimitMB     = 10240
	// MaxInitialDataBytes limits initial_state and skills together, including names.
	MaxInitialDataBytes = 1 << 20
)

// SnapshotSpec says that an environment keeps /data from one generation to the next, and how.
type SnapshotSpec struct {
	Scope            SnapshotScope  `json:"scope,omitempty" enum:"agent_environment,agent" doc:"Which leases share a snapshot. agent_environment: those of an agent in this environment. agent: those of an agent in all environments, for tokens with the same environment patterns. Default agent_environment."`
	CheckpointEvery  *Duration      `json:"checkpoint_every,omitempty" doc:"While the lease is active, changes by commands and files are saved at most this often; 0s disables checkpoints. Default 1m."`
	OnPersistFailure PersistFailure `json:"on_persist_failure,omitempty" enum:"retry,discard" doc:"What happens to a sandbox whose last snapshot cannot be saved: retry keeps it frozen and retries; discard destroys it. Default retry."`
	RetryFor         Duration       `json:"retry_for,omitempty" doc:"How long retry keeps the frozen sandbox. Default 24h, at most 168h."`
	SizeLimitMB      int64          `json:"size_limit_mb,omitempty" doc:"Largest size of a snapshot, unpacked, in MiB. Default 256, at most 10240." minimum:"0" maximum:"10240"`
}

// withDefaults returns the specification with its defaults filled in; nil stays nil.
func (s *SnapshotSpec) withDefaults() *SnapshotSpec {
	if s == nil {
		return nil
	}
	filled := *s
	orDefault(&filled.Scope, ScopeAgentEnvironment)
	orDefault(&filled.OnPersistFailure, PersistRetry)
	orDefault(&filled.RetryFor, DefaultRetryFor)
	orDefault(&filled.SizeLimitMB, DefaultSnapshotLimitMB)
	if filled.CheckpointEvery == nil {
		every := DefaultCheckpointEvery
		filled.CheckpointEvery = &every
	}
	return &filled
}

// fields returns the problems of a specification. Its defaults must be filled in.
func (s *SnapshotSpec) fields() (f []Field) {
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
	checkRange(bad, "size_limit_mb", s.SizeLimitMB, 1, MaxSnapshotLimitMB)
	return f
}

// Key names the snapshot of an agent in an environment. Leases with the same key share one snapshot. The
// namespace matters only for ScopeAgent: every token that may touch an environment may use the environment's
// own snapshots.
func (s *SnapshotSpec) Key(agentDID, environmentID string, n SnapshotNamespace) string {
	if s.Scope == ScopeAgent {
		return n.key(agentDID)
	}
	return LeaseID(agentDID, environmentID)
}

// Sources are keys whose snapshots a lease may start from if its own key has none: the agent's snapshots saved
// by the operator's leases, and those saved by tokens for this environment alone. The lease must not use a
// snapshot that was saved in an environment outside of its namespace.
func (s *SnapshotSpec) Sources(agentDID, environmentID string, n SnapshotNamespace) []string {
	if s.Scope != ScopeAgent {
		return nil
	}
	sources := []string{SnapshotNamespace(nil).key(agentDID), SnapshotNamespace{environmentID}.key(agentDID)}
	return slices.DeleteFunc(sources, func(key string) bool { return key == n.key(agentDID) })
}

// Limit is the largest size of a snapshot, in bytes, unpacked.
func (s *SnapshotSpec) Limit() int64 { return s.SizeLimitMB << 20 }

// HasInitialData reports whether sandboxes of the environment start with files in DataDir.
func (s EnvironmentSpec) HasInitialData() bool {
	return s.Snapshot != nil || len(s.InitialData) > 0 || len(s.Skills) > 0
}

var skillSlug = pattern(`^[a-z0-9][a-z0-9_-]{0,62}$`)

// SkillFile returns the path of a skill's prompt, relative to DataDir.
func SkillFile(slug string) string { return "skills/" + slug + "/prompt.md" }

// initialDataFields returns the problems of initial_state and skills.
func (s EnvironmentSpec) initialDataFields() (f []Field) {
	total := 0
	for _, name := range slices.Sorted(maps.Keys(s.InitialData)) {
		text := s.InitialData[name]
		total += len(name) + len(text)
		if problem := s.initialDataProblem(name, text); problem != "" {
			f = append(f, Field{"initial_state." + name, problem})
		}
	}
	for _, slug := range slices.Sorted(maps.Keys(s.Skills)) {
		text := s.Skills[slug]
		total += len(slug) + len(text)
		switch {
		case !skillSlug().MatchString(slug):
			f = append(f, Field{
				"skills." + slug, "the name must be 1 to 63 characters of a-z, 0-9, '_' and '-', and start with a letter or digit",
			})
		case !utf8.ValidString(text):
			f = append(f, Field{"skills." + slug, "must be UTF-8 text"})
		}
	}
	if total > MaxInitialDataBytes {
		f = append(f, Field{"initial_state", fmt.Sprintf("has %d bytes together with skills, but at most %d are allowed: "+
			"move files into the image", total, MaxInitialDataBytes)})
	}
	return f
}

// initialDataProblem returns why a file of initial_state cannot be written, "" if it can.
func (s EnvironmentSpec) initialDataProblem(name, text string) string {
	switch {
	case name == "" || len(name) > 255 || !utf8.ValidString(name) || strings.ContainsRune(name, 0):
		return "the name must be a path of 1 to 255 bytes of UTF-8, without NUL"
	case path.IsAbs(name) || path.Clean(name) != name || name == "." || name == ".." || strings.HasPrefix(name, "../"):
		return "the name must be a clean path relative to /data, such as character.json or memory/intro.md"
	case slices.Contains(DataLayout, name):
		return "is a directory of /data: name a file in it"
	case !utf8.ValidString(text):
		return "must be UTF-8 text"
	}
	for dir := path.Dir(name); dir != "."; dir = path.Dir(dir) {
		if _, isFile := s.InitialData[dir]; isFile {
			return fmt.Sprintf("is in %s, which is a file of initial_state", dir)
		}
	}
	return ""
}

// LeaseSnapshot is the status of a lease's snapshot, if its environment keeps snapshots.
type LeaseSnapshot struct {
	// Key names the snapshot. Leases with the same key share it.
	Key string `json:"key"`
	// Role is this generation's role for the snapshot.
	Role SnapshotRole `json:"role" enum:"waiting,holder,copy,done,lost"`
	// RestoredFrom is the snapshot that the generation started from; nil means the environment's initial_state.
	RestoredFrom *Snapshot `json:"restored_from,omitempty"`
	// SavedAt is the time of this generation's latest snapshot, zero if there is none.
	SavedAt time.Time `json:"saved_at,omitzero"`
	// UnsavedSince is set while there are known changes that are not saved yet.
	UnsavedSince time.Time `json:"unsaved_since,omitzero"`
	// Error says why the last attempt to save failed, or what the save waits for. FailingSince is when the first failure
	// in a row happened. At GivesUpAt the sandbox of an ended lease is destroyed without a save.
	Error        string    `json:"error,omitempty"`
	FailingSince time.Time `json:"failing_since,omitzero"`
	GivesUpAt    time.Time `json:"gives_up_at,omitzero"`
}

// SnapshotRole is the role of a generation for the snapshot of its key.
type SnapshotRole string

// The roles. A generation has one from its first step.
const (
	// RoleWaiting: it waits for the holder to save the snapshot.
	RoleWaiting SnapshotRole = "waiting"
	// RoleHolder: it alone saves the snapshot.
	RoleHolder SnapshotRole = "holder"
	// RoleCopy: it started with a copy of a snapshot that another lease of the agent holds, and saves nothing.
	RoleCopy SnapshotRole = "copy"
	// RoleDone: it was the holder and has saved the snapshot for the last time.
	RoleDone SnapshotRole = "done"
	// RoleLost: it was the holder, and its changes after SavedAt could not be saved.
	RoleLost SnapshotRole = "lost"
)

// Snapshot describes the latest snapshot of a key.
type Snapshot struct {
	Key           string `json:"key"`
	AgentDID      string `json:"agent_did"`
	EnvironmentID string `json:"environment_id"`
	// Generation and SandboxID identify the sandbox that saved it.
	Generation int64  `json:"generation"`
	SandboxID  string `json:"sandbox_id"`
	// SavedAt is the time of the state that the snapshot holds.
	SavedAt time.Time `json:"saved_at"`
	SHA256  string    `json:"sha256"`
	// Bytes is the stored size. UnpackedBytes and Files describe the content.
	Bytes         int64 `json:"bytes"`
	UnpackedBytes int64 `json:"unpacked_bytes"`
	Files         int64 `json:"files"`
	// Skipped counts files that are not saved: devices, sockets and similar.
	Skipped int64 `json:"skipped,omitempty"`
}

// SnapshotsKept is the data of EventSnapshotsKept: before namespaces, all tokens shared agents' snapshots. They
// keep their keys and now belong to the operator. The lease of a limited token can start from one that was
// saved in an environment that the token may touch.
type SnapshotsKept struct {
	Snapshots int64 `json:"states"`
	// Keys are the first 100 keys at most.
	Keys []string `json:"keys"`
}

// SnapshotFilter selects snapshots. An empty field selects all.
type SnapshotFilter struct {
	AgentDID      string
	EnvironmentID string
	// After is the key of the last snapshot of the previous page.
	After string
	// Limit is the page size, 1 to 1000; zero means 1000.
	Limit int
}

// Validate checks the page size. Errors: Invalid.
func (f SnapshotFilter) Validate() error {
	return InvalidFields("the filter of snapshots", checkLimit(nil, f.Limit, MaxPage))
}

// KeptDisk describes the saved disk of a sandbox with keep_disk, on a backend where a stopped sandbox loses its disk.
// It is data of EventStopped and EventAwake.
type KeptDisk struct {
	// SavedAt is when the disk was saved with which the sandbox wakes, or woke. It is zero if there is none.
	SavedAt time.Time `json:"saved_at,omitzero"`
	// Lost is why the sandbox wakes, or woke, with an empty disk; "" if it does not.
	Lost string `json:"lost,omitempty"`
}

// DiskLost is the data of EventDiskLost.
type DiskLost struct {
	Reason string `json:"reason"`
}
