package sandbox

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
	"unicode/utf8"
)

// Limits of a session.
const (
	// MaxSessionEnv bounds the variables of a session, names and values together, in bytes.
	MaxSessionEnv = 32 << 10
	// MaxShellLine bounds a line of the shell, in bytes.
	MaxShellLine = 64 << 10
	// MaxSessionRecording bounds the recording of a session: the data of its events, and SessionEventCost
	// for each.
	MaxSessionRecording = 16 << 20
	SessionEventCost    = 256
)

// SessionState is where a session stands.
type SessionState string

// The states of a session.
const (
	SessionOpen   SessionState = "open"
	SessionClosed SessionState = "closed"
)

// Session is a place in a lease's sandbox where commands are run one after the other, with variables and
// a directory of their own, and a recording. No process lives for it: it is there when its sandbox sleeps,
// has crashed and was started again, or the service was. It closes with its sandbox.
type Session struct {
	// ID names one session of its sandbox, for ever.
	ID         string `json:"id"`
	LeaseID    string `json:"lease_id"`
	Generation int64  `json:"generation"`
	SandboxID  string `json:"sandbox_id"`
	// EnvNames are its variables; their values are not shown.
	EnvNames []string `json:"env_names,omitempty"`
	// Cwd is where its next command begins.
	Cwd       string       `json:"cwd"`
	User      string       `json:"user,omitempty"`
	State     SessionState `json:"state" enum:"open,closed"`
	CreatedAt time.Time    `json:"created_at"`
	ClosedAt  time.Time    `json:"closed_at,omitzero"`
	// ExecID is the command that runs in it, "" when none does.
	ExecID string `json:"exec_id,omitempty"`
	// LastSequence is its latest event.
	LastSequence int64 `json:"last_sequence"`
	// RecordedBytes is what counts of its recording; Full: there is no room for more.
	RecordedBytes int64 `json:"recorded_bytes"`
	Full          bool  `json:"full,omitempty"`
	// DroppedAt is since when its recording is no longer kept, because newer output took its room. Nothing more is recorded.
	DroppedAt time.Time `json:"dropped_at,omitzero" doc:"Since when its recording is no longer kept: newer output took its room."`
}

// SessionRef names a session of a lease.
type SessionRef struct {
	LeaseID string
	// Generation is the lease's at the time; zero means the latest that has had such a session.
	Generation int64
	ID         string
}

// CreateSession asks for a session in a lease's sandbox.
type CreateSession struct {
	// ID is as ExecRequest's. It names one session of the sandbox for ever: the same request under it finds
	// the same session. Without one the service issues it.
	ID string
	// Env are its variables at first. Their values lie sealed in the ledger.
	Env map[string]string
	// Cwd and User are ExecRequest's.
	Cwd, User string
}

// Normalize fills in defaults and checks the request. Errors: Invalid.
func (c CreateSession) Normalize() (CreateSession, error) {
	asked := ExecRequest{ID: c.ID, Command: []string{"true"}, Env: c.Env, Cwd: c.Cwd, User: c.User}
	r, err := asked.Normalize()
	if err != nil {
		return c, err
	}
	c.Cwd = r.Cwd
	var f []Field
	if n := envBytes(c.Env); n > MaxSessionEnv {
		f = append(f, Field{"env", fmt.Sprintf("is %d bytes, names and values together, and must be at most %d", n, MaxSessionEnv)})
	}
	return c, InvalidFields("session", f)
}

func envBytes(env map[string]string) (n int) {
	for name, value := range env {
		n += len(name) + len(value)
	}
	return n
}

// sessionFields returns what is wrong with what only commands of sessions have.
func (r ExecRequest) sessionFields() (f []Field) {
	bad := func(name, problem string) { f = append(f, Field{name, problem}) }
	if r.Shell != "" {
		switch {
		case len(r.Command) > 0:
			bad("shell", "takes the place of command: give one of them")
		case r.Session == "":
			bad("shell", "needs a session: without one, run the command sh -c")
		case len(r.Shell) > MaxShellLine:
			bad("shell", fmt.Sprintf("must be at most %d bytes long, not %d", MaxShellLine, len(r.Shell)))
		case strings.ContainsRune(r.Shell, 0) || !utf8.ValidString(r.Shell):
			bad("shell", "must be text without NUL")
		}
	}
	switch {
	case r.Session == "" && r.Source != "":
		bad("source", "is recorded in sessions only: name one")
	case r.Session != "" && r.User != "":
		bad("user", "is the session's")
	case r.Source != "" && !slices.Contains([]EventSource{SourceUser, SourceAgent, SourceSystem}, r.Source):
		bad("source", "must be user, agent or system")
	}
	return f
}

// ShellState is what a line of the shell has left behind, as against what it began with.
type ShellState struct {
	// Cwd is the directory that it ended in, "" when that lies outside of Roots; then Outside names it.
	Cwd, Outside string
	// Set are the variables that it exported, with another value or anew; Unset are those that it took away.
	Set   map[string]string
	Unset []string
	// Problem is why there is nothing of all this, "" when that is not so.
	Problem string
}

// Apply returns what variables and directory of a session are after a line of its shell, and what of the
// line's is not kept and why, which holds no values. What the environment blocks is not kept, nor what
// would be more than MaxSessionEnv. It may be given anything: it comes from a sandbox.
func (s *ShellState) Apply(env map[string]string, cwd string, blocked []string) (newEnv map[string]string, newCwd string, problems []string) {
	if s == nil {
		return env, cwd, []string{"what the line has set is not kept: its shell ended without telling (it was killed, has run another program in its place, or has its own trap on EXIT)"}
	}
	if s.Problem != "" {
		return env, cwd, []string{"what the line has set is not kept: " + s.Problem}
	}
	if clean, err := CleanPath(s.Cwd); s.Cwd != "" && err == nil {
		cwd = clean
	} else {
		problems = append(problems, fmt.Sprintf("the line ended in %q, which lies outside of %s: the next one begins in %s", s.Outside+s.Cwd, strings.Join(Roots, " and "), cwd))
	}
	newEnv = maps.Clone(env)
	if newEnv == nil {
		newEnv = make(map[string]string)
	}
	for _, name := range s.Unset {
		delete(newEnv, name)
	}
	var refused []string
	for _, name := range slices.Sorted(maps.Keys(s.Set)) {
		if EnvProblem(name, blocked) != "" || !utf8.ValidString(s.Set[name]) || strings.ContainsRune(s.Set[name], 0) {
			refused = append(refused, name)
			continue
		}
		newEnv[name] = s.Set[name]
	}
	if len(refused) > 0 {
		problems = append(problems, fmt.Sprintf("these variables are not kept, they may not be set: %q", refused))
	}
	if n := envBytes(newEnv); n > MaxSessionEnv {
		return env, cwd, append(problems, fmt.Sprintf("the variables are %d bytes, and a session has at most %d: they are left as they were", n, MaxSessionEnv))
	}
	return newEnv, cwd, problems
}

// SessionEventType is what an event of a session is.
type SessionEventType string

// The types of a session's events.
const (
	SessionInput  SessionEventType = "input"  // a command, or its standard input
	SessionOutput SessionEventType = "output" // its standard output
	SessionError  SessionEventType = "error"  // its standard error
	SessionSystem SessionEventType = "system" // what the service has to say
)

// EventSource is who an event of a session comes from.
type EventSource string

// The sources.
const (
	SourceUser   EventSource = "user"
	SourceAgent  EventSource = "agent"
	SourceSystem EventSource = "system"
)

// SessionEvent is one entry of a session's recording.
type SessionEvent struct {
	// Sequence orders the events of one session from 1 without gaps.
	Sequence int64
	At       time.Time
	Type     SessionEventType
	Source   EventSource
	// ExecID is the command that it belongs to, "" when it belongs to none.
	ExecID string
	Data   []byte
}

// SessionFilter selects the sessions of a lease.
type SessionFilter struct {
	LeaseID string
	// State selects those in one state; empty selects all.
	State SessionState
	// Limit is how many, 1 to 1000; zero means 1000.
	Limit int
}

// SessionEventFilter selects events of a session, in ascending order.
type SessionEventFilter struct {
	SessionRef
	// After selects those after a sequence; 0 begins with the first.
	After int64
	// Limit is the page size, 1 to MaxSessionPage; zero means MaxSessionPage.
	Limit int
}

// MaxSessionPage bounds a page of a session's events, which hold up to 8 KiB each.
const MaxSessionPage = 256
