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
	// MaxSessionEnv limits the variables of a session, names and values together, in bytes.
	MaxSessionEnv = 32 << 10
	// MaxShellLine limits a shell line, in bytes.
	MaxShellLine = 64 << 10
	// MaxSessionRecording limits the recording of a session, in bytes: the data of its events plus
	// SessionEventCost per event.
	MaxSessionRecording = 16 << 20
	SessionEventCost    = 256
)

// SessionState is the state of a session.
type SessionState string

// The states of a session.
const (
	SessionOpen   SessionState = "open"
	SessionClosed SessionState = "closed"
)

// Session runs commands one after another in a lease's sandbox, with its own variables, directory and
// recording. It is not a process: it survives sleep, crash and restart of its sandbox, and a restart of the
// service. It closes with its sandbox.
type Session struct {
	// ID names one session of its sandbox. It is never reused.
	ID         string `json:"id"`
	LeaseID    string `json:"lease_id"`
	Generation int64  `json:"generation"`
	SandboxID  string `json:"sandbox_id"`
	// EnvNames are the names of its variables. The values are not shown.
	EnvNames []string `json:"env_names,omitempty"`
	// IsNew is set only by CreateSession.
	IsNew bool `json:"is_new,omitempty" doc:"Only in the response of create-session: the request opened the session, and did not repeat an earlier one."`
	// Cwd is the directory in which the next command starts.
	Cwd       string       `json:"cwd" doc:"Directory in which the next command starts."`
	User      string       `json:"user,omitempty" doc:"User of its commands. Absent: the sandbox's user."`
	State     SessionState `json:"state" enum:"open,closed" doc:"A session closes when it is closed or when its lease ends."`
	CreatedAt time.Time    `json:"created_at"`
	ClosedAt  time.Time    `json:"closed_at,omitzero" doc:"When it was closed, or when its lease ended."`
	// ExecID is the running command, "" if there is none.
	ExecID string `json:"exec_id,omitempty" doc:"The running command, if there is one."`
	// LastSequence is the sequence of its latest event.
	LastSequence int64 `json:"last_sequence" doc:"Sequence of its latest event."`
	// RecordedBytes is the size of its recording. Full: the recording has reached its limit.
	RecordedBytes int64 `json:"recorded_bytes" doc:"Size of its recording."`
	Full          bool  `json:"full,omitempty" doc:"The recording has reached its limit, and later output is not recorded."`
	// DroppedAt is when its recording was deleted to make room for newer output. Nothing is recorded after
	// that.
	DroppedAt time.Time `json:"dropped_at,omitzero" doc:"When its recording was deleted to make room for newer output."`
}

// SessionRef names a session of a lease.
type SessionRef struct {
	LeaseID string
	// Generation is the lease's generation; zero means the latest one that has this session.
	Generation int64
	ID         string
}

// CreateSession asks for a new session in a lease's sandbox.
type CreateSession struct {
	// ID is as in ExecRequest. A repeated request with the same ID returns the same open session. If empty, the
	// service issues one.
	ID string
	// Env are the initial variables. The ledger stores their values sealed.
	Env map[string]string
	// Cwd and User are as in ExecRequest.
	Cwd, User string
}

// Normalize fills in defaults and checks the request for a session of a lease. It drops variables that the lease's
// sandbox already has with the same values. Errors: Invalid.
func (c CreateSession) Normalize(leaseID string) (CreateSession, error) {
	if agent, environment, err := ParseLeaseID(leaseID); err == nil {
		own := map[string]string{"AGENT_DID": agent, "ENVIRONMENT_ID": environment}
		c.Env = maps.Clone(c.Env)
		maps.DeleteFunc(c.Env, func(name, value string) bool { return value != "" && own[name] == value })
	}
	asked := ExecRequest{ID: c.ID, Command: []string{"true"}, Env: c.Env, Cwd: c.Cwd, User: c.User}
	r, err := asked.Normalize()
	if err != nil {
		return c, err
	}
	c.Cwd = r.Cwd
	var f []Field
	if n := envBytes(c.Env); n > MaxSessionEnv {
		f = append(f,
			Field{"env", fmt.Sprintf("has %d bytes of names and values, but at most %d are allowed", n, MaxSessionEnv)})
	}
	return c, InvalidFields("session", f)
}

func envBytes(env map[string]string) (n int) {
	for name, value := range env {
		n += len(name) + len(value)
	}
	return n
}

// sessionFields returns the problems of the fields that only commands of sessions may have.
func (r ExecRequest) sessionFields() (f []Field) {
	bad := func(name, problem string) { f = append(f, Field{name, problem}) }
	if r.Shell != "" {
		switch {
		case len(r.Command) > 0:
			bad("shell", "replaces command: set only one of them")
		case r.Session == "":
			bad("shell", "requires a session: without one, run the command sh -c")
		case len(r.Shell) > MaxShellLine:
			bad("shell", fmt.Sprintf("must be at most %d bytes long, not %d", MaxShellLine, len(r.Shell)))
		case strings.ContainsRune(r.Shell, 0) || !utf8.ValidString(r.Shell):
			bad("shell", "must be UTF-8 text without NUL")
		}
	}
	switch {
	case r.Session == "" && r.Source != "":
		bad("source", "requires a session: only sessions record it")
	case r.Session != "" && r.User != "":
		bad("user", "must not be set: the session sets the user")
	case r.Source != "" && !slices.Contains([]EventSource{SourceUser, SourceAgent, SourceSystem}, r.Source):
		bad("source", "must be user, agent or system")
	}
	return f
}

// ShellState is what a shell line changed, compared with the state before it.
type ShellState struct {
	// Cwd is the directory in which it ended, "" if that is outside of Roots. Then Outside names it.
	Cwd, Outside string
	// Set are the variables that it exported, new or changed. Unset are those that it removed.
	Set   map[string]string
	Unset []string
	// Problem says why the state could not be read, "" if it could.
	Problem string
}

// Apply returns the variables and the directory of a session after a shell line. problems says what it drops and why;
// it contains no values. It drops variables that the environment blocks, and an env larger than MaxSessionEnv. s comes
// from a sandbox and is not trusted.
func (s *ShellState) Apply(env map[string]string, cwd string,
	blocked []string) (newEnv map[string]string, newCwd string, problems []string) {
	if s == nil {
		return env, cwd, []string{"the line's variables and directory are not kept: its shell did not report them " +
			"(it was killed, replaced itself with exec, or set its own trap on EXIT)"}
	}
	if s.Problem != "" {
		return env, cwd, []string{"the line's variables and directory are not kept: " + s.Problem}
	}
	if clean, err := CleanPath(s.Cwd); s.Cwd != "" && err == nil {
		cwd = clean
	} else {
		problems = append(problems, fmt.Sprintf("the line ended in %q, which is outside of %s: the next one starts in %s",
			s.Outside+s.Cwd, strings.Join(Roots, " and "), cwd))
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
		problems = append(problems, fmt.Sprintf(
			"these variables are not kept, because they are blocked or not valid text: %q", refused))
	}
	if n := envBytes(newEnv); n > MaxSessionEnv {
		return env, cwd, append(problems, fmt.Sprintf(
			"the variables have %d bytes, but a session allows %d: the line's changes are not kept", n, MaxSessionEnv))
	}
	return newEnv, cwd, problems
}

// SessionEventType is the type of an event of a session.
type SessionEventType string

// The event types of a session.
const (
	SessionInput  SessionEventType = "input"  // a command, or its standard input
	SessionOutput SessionEventType = "output" // its standard output
	SessionError  SessionEventType = "error"  // its standard error
	SessionSystem SessionEventType = "system" // a message of the service
)

// EventSource is the author of an event of a session.
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
	// ExecID is the command of the event, "" for none.
	ExecID string
	Data   []byte
}

// SessionFilter selects the sessions of a lease.
type SessionFilter struct {
	LeaseID string
	// State selects sessions in one state; empty selects all.
	State SessionState
	// Limit is the largest number of sessions, 1 to 1000; zero means 1000.
	Limit int
}

// SessionStates lists all states of sessions.
var SessionStates = []SessionState{SessionOpen, SessionClosed}

// Validate checks state and page size. Errors: Invalid, listing the valid values.
func (f SessionFilter) Validate() error {
	return InvalidFields("the filter of sessions", checkLimit(checkState(nil, f.State, SessionStates), f.Limit, MaxPage))
}

// SessionEventFilter selects events of a session, in ascending order.
type SessionEventFilter struct {
	SessionRef
	// After selects events after this sequence; 0 starts with the first.
	After int64
	// Limit is the page size, 1 to MaxSessionPage; zero means MaxSessionPage.
	Limit int
}

// CheckLimit checks the page size. Errors: Invalid.
func (f SessionEventFilter) CheckLimit() error {
	return InvalidFields("the filter of a recording", checkLimit(nil, f.Limit, MaxSessionPage))
}

// MaxSessionPage limits a page of a session's events, which hold up to 8 KiB each.
const MaxSessionPage = 256
