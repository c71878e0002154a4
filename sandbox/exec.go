package sandbox

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"path"
	"slices"
	"strings"
	"time"
)

// Output limit of a command, and the exit code of a command that timed out (as timeout(1) defines it).
const (
	DefaultOutputLimit = 1 << 20 // bytes per stream
	ExitTimeout        = 124
)

// WorkspaceRoot is the directory in which commands start.
const WorkspaceRoot = "/workspace"

// ConfigFile is the file in every sandbox that says what its lease is. No setting puts another file there.
const ConfigFile = WorkspaceRoot + "/config.json"

// Roots are the only directories that the file API and working directories may use.
var Roots = []string{WorkspaceRoot, "/data"}

// ExecRequest asks to run a command in a sandbox.
type ExecRequest struct {
	// ID names the command: 1 to 63 characters of a-z, 0-9, '.', '_' and '-', starting with a letter or digit.
	// If empty, the service issues one. An id is never reused. A repeated request with the same ID gets the same
	// command; Stdin and the values of Env are not compared.
	ID string
	// Detach: the command continues when its caller disconnects. Stdin must be nil.
	Detach bool
	// Command is the program and its arguments, run without a shell.
	Command []string
	// Session is the session to run in, "" for none. The session provides the user, and the variables and the
	// directory that the request does not set.
	Session string
	// Shell is a command line for the image's /bin/sh, instead of Command. The session keeps the variables that
	// it exports and the directory in which it ends. It requires a session.
	Shell string
	// Source is the author of a command in a session. Default: SourceAgent.
	Source EventSource
	Env    map[string]string
	// Cwd must be in one of Roots. Default: /workspace, or the session's directory.
	Cwd string
	// User is a numeric "uid" or "uid:gid". The default gid equals the uid. Default: the sandbox's user. Root
	// is refused unless the environment's confinement allows it.
	User string
	// As is AsVerifier, or "" for a normal command.
	As ExecAs
	// Timeout ends the command and everything that it started. The exit code is then ExitTimeout. Default: the
	// environment's CommandTimeout. At most MaxExecTimeout; no minimum, because probes may use a second.
	Timeout Duration
	// Stdin is read to its end if not nil.
	Stdin io.Reader
	// Stdout and Stderr receive output as it arrives. If nil, the result collects it, up to OutputLimit bytes
	// per stream (default DefaultOutputLimit).
	Stdout, Stderr io.Writer
	OutputLimit    int
}

// Normalize fills in defaults and checks the request. Errors: Invalid.
func (r ExecRequest) Normalize() (ExecRequest, error) {
	if r.Session == "" {
		orDefault(&r.Cwd, "/workspace")
	}
	orDefault(&r.Timeout, DefaultExecTimeout)
	orDefault(&r.OutputLimit, DefaultOutputLimit)
	var f []Field
	if r.ID != "" && !isEnvironmentID(r.ID) {
		f = append(f,
			Field{"id", "must be 1 to 63 characters of a-z, 0-9, '.', '_' and '-', and start with a letter or digit"})
	}
	if r.Detach && r.Stdin != nil {
		f = append(f,
			Field{"stdin", "must not be set for a detached command: write a file, and let the command read it"})
	}
	if r.Shell == "" {
		f = append(f, commandFields("", r.Command, r.Env)...)
	}
	if r.Cwd != "" {
		clean, err := CleanPath(r.Cwd)
		if err != nil {
			f = append(f, Field{"cwd", err.Error()})
		}
		r.Cwd = clean
	}
	f = append(f, r.sessionFields()...)
	f = append(f, r.asFields()...)
	if r.Session != "" {
		orDefault(&r.Source, SourceAgent)
	}
	if r.Timeout < 0 || r.Timeout > MaxExecTimeout {
		f = append(f, Field{"timeout", "must be between 0s and 24h"})
	}
	f = append(f, AnyRules().fields("", slices.Sorted(maps.Keys(r.Env)), r.User)...)
	return r, InvalidFields("exec", f)
}

// MaxCommand limits the arguments and variables of a command, in bytes of JSON. By default Linux passes as many bytes
// to a program.
const MaxCommand = 2 << 20

// commandFields checks the arguments of a command, and their size with that of its variables.
func commandFields(prefix string, command []string, env map[string]string) (f []Field) {
	if len(command) == 0 || command[0] == "" {
		f = append(f, Field{prefix + "command", "must name a program"})
	}
	if slices.ContainsFunc(command, func(arg string) bool { return strings.ContainsRune(arg, 0) }) {
		f = append(f, Field{prefix + "command", "must not contain a NUL byte"})
	}
	size := 0
	for _, part := range []any{command, env} {
		text, _ := json.Marshal(part) //nolint:errchkjson // strings can be encoded
		size += len(text)
	}
	if size > MaxCommand {
		f = append(f, Field{prefix + "command", fmt.Sprintf("has %d bytes with its variables, at most %d are allowed: "+
			"write a file, and let the command read it", size, MaxCommand)})
	}
	return f
}

// CheckAttached refuses to wait for a detached command. Errors: Invalid.
func (r ExecRequest) CheckAttached() error {
	if !r.Detach {
		return nil
	}
	return InvalidFields("exec", []Field{{
		"detach", "must not be set when waiting for the command: start a detached command with StartExec",
	}})
}

// CleanPath returns p as an absolute path in a sandbox; a relative p starts at /workspace. It refuses paths
// outside of Roots. It cannot see symbolic links: the sandbox checks those.
func CleanPath(p string) (string, error) {
	if strings.ContainsRune(p, 0) {
		return "", fmt.Errorf("must not contain a NUL byte")
	}
	if !path.IsAbs(p) {
		p = "/workspace/" + p
	}
	p = path.Clean(p)
	if !slices.ContainsFunc(Roots, func(root string) bool { return p == root || strings.HasPrefix(p, root+"/") }) {
		return "", fmt.Errorf("%q is outside of /workspace and /data", p)
	}
	return p, nil
}

// ExecResult is the result of a command.
type ExecResult struct {
	// ExecID is the id under which the service keeps the command. A backend leaves it empty.
	ExecID string
	// ExitCode is the program's own, ExitTimeout after a timeout, 126 or 127 if the command could not start,
	// 128 + n if signal n ended it.
	ExitCode int
	Stdout   []byte
	Stderr   []byte
	Duration Duration
	TimedOut bool
	// OOMKilled: the kernel killed a process of the sandbox for lack of memory while the command ran.
	OOMKilled bool
	// Truncated: output beyond the limit was dropped.
	Truncated bool
	// StdoutBytes and StderrBytes are the bytes that the command wrote, if the backend knows.
	StdoutBytes, StderrBytes int64
	// Shell is the state that a shell line left behind, nil if its shell did not report it. The service stores
	// it in the session and does not return it.
	Shell *ShellState
	// CPUTime is the CPU time of the whole sandbox from its start to the end of the command; 0 if the backend does not
	// know it. The service accounts for it and does not return it.
	CPUTime time.Duration
}

// Replay asks for the output of a command from given offsets, and follows it until the command ends.
type Replay struct {
	// ID is the command's id.
	ID string
	// Stdout and Stderr receive the output after the first StdoutOffset and StderrOffset bytes.
	Stdout, Stderr             io.Writer
	StdoutOffset, StderrOffset int64
	// Now returns only the output that exists already. The result is then empty.
	Now bool
	// Begins, if set, gets the offset of the next byte of Stdout: before the first byte, and after each gap of bytes that
	// are no longer kept. Logs of processes can have gaps, and call it first. Output of commands has none. An error from
	// Begins fails the read.
	Begins func(offset int64) error
}

// MaxKeptOutput limits the stored output per stream of a command, in bytes. Output beyond it reaches live
// readers but is not stored.
const MaxKeptOutput = 16 << 20

// ExecState is the state of a command.
type ExecState string

// The states. The last three are final.
const (
	ExecRunning ExecState = "running"
	// ExecFinished: it ended on its own or timed out, and the result is known.
	ExecFinished ExecState = "finished"
	// ExecFailed: it could not run, or its result is unknown.
	ExecFailed ExecState = "failed"
	// ExecCancelled: CancelExec, the end of its lease, or the caller's disconnect ended it.
	ExecCancelled ExecState = "cancelled"
)

// Exec is one command in its current state. It is kept as long as its sandbox.
type Exec struct {
	ID         string   `json:"id"`
	LeaseID    string   `json:"lease_id"`
	Generation int64    `json:"generation"`
	SandboxID  string   `json:"sandbox_id"`
	Command    []string `json:"command"`
	// EnvNames are the names of its variables. The values are not stored.
	EnvNames []string `json:"env_names,omitempty"`
	Cwd      string   `json:"cwd"`
	User     string   `json:"user,omitempty"`
	As       ExecAs   `json:"as,omitempty" enum:"verifier" doc:"verifier: the command runs as the sandbox's verifier."`
	Timeout  Duration `json:"timeout" doc:"Run time after which it is killed."`
	Detached bool     `json:"detached,omitempty" doc:"It runs without its caller."`
	// SessionID is the session that it runs in, "" for none.
	SessionID string    `json:"session_id,omitempty" doc:"The session that it runs in."`
	State     ExecState `json:"state" enum:"running,finished,failed,cancelled" doc:"finished: it ended on its own or timed out. failed: it could not run, or its result is unknown. cancelled: a request, the end of its lease or its caller's disconnect ended it."`
	// StartedAt is when the service accepted it.
	StartedAt  time.Time `json:"started_at" doc:"When the service accepted it."`
	FinishedAt time.Time `json:"finished_at,omitzero" doc:"When it ended, also where the service learned of that later."`
	// ExitCode, TimedOut and OOMKilled are those of ExecResult. ExitCode is nil unless State is ExecFinished.
	ExitCode  *int `json:"exit_code,omitempty" doc:"The program's exit code, once the command has finished. A command that runs, failed or was cancelled has none."`
	TimedOut  bool `json:"timed_out,omitempty" doc:"It ran longer than its timeout and was killed; the exit code is then 124."`
	OOMKilled bool `json:"oom_killed,omitempty" doc:"It was killed because the sandbox reached its memory limit."`
	// Error says why it failed or was cancelled, or why its output is incomplete.
	Error string `json:"error,omitempty" doc:"Why it failed or was cancelled, or why its output is incomplete."`
	// StdoutBytes and StderrBytes are the bytes written, once it has ended. Truncated: not all of them are
	// stored.
	StdoutBytes int64 `json:"stdout_bytes" doc:"Bytes written, once it has ended."`
	StderrBytes int64 `json:"stderr_bytes" doc:"Bytes written, once it has ended."`
	Truncated   bool  `json:"truncated,omitempty" doc:"Not all of its output is stored."`
	// DroppedAt is when its stored output was deleted to make room for newer output.
	DroppedAt time.Time `json:"dropped_at,omitzero" doc:"When its output was deleted to make room for newer output."`
	// LastEventSequence is the latest event of the sandbox that this state includes.
	LastEventSequence int64 `json:"last_event_sequence"`
}

// ExecRef names a command of a lease, in any generation.
type ExecRef struct {
	LeaseID string
	ID      string
}

// ExecFilter selects the commands of a lease.
type ExecFilter struct {
	LeaseID string
	// State selects commands in one state; empty selects all.
	State ExecState
	// Before is the id of the last command of the previous page.
	Before string
	// Limit is the page size, 1 to 1000; zero means 1000.
	Limit int
}

// ExecStates lists all states of commands.
var ExecStates = []ExecState{ExecRunning, ExecFinished, ExecFailed, ExecCancelled}

// Validate checks state and page size. Errors: Invalid, listing the valid values.
func (f ExecFilter) Validate() error {
	return InvalidFields("the filter of commands", checkLimit(checkState(nil, f.State, ExecStates), f.Limit, MaxPage))
}

// ExecStream is an output stream of a command.
type ExecStream string

// The streams.
const (
	Stdout ExecStream = "stdout"
	Stderr ExecStream = "stderr"
)

// OutputRequest asks for the output of a command.
type OutputRequest struct {
	ExecRef
	Stream ExecStream
	// Offset is the first byte to return, from 0.
	Offset int64
	// Follow continues until the command ends. Without it, only existing output is returned.
	Follow bool
}

// CommandRules are an environment's rules for everything that runs in its sandboxes: commands, processes,
// sessions and post-start commands.
type CommandRules struct {
	// Blocked are variables that the environment blocks, in addition to those that are always blocked.
	Blocked []string
	// AllowRoot permits user and group 0.
	AllowRoot bool
	// SharedUser: the environment sets one user for all of its sandboxes.
	SharedUser bool
}

// AnyRules returns the rules of every environment. They check a request before its environment is known.
func AnyRules() CommandRules { return CommandRules{AllowRoot: true} }

// Rules returns the environment's rules for commands.
func (s EnvironmentSpec) Rules() CommandRules {
	return CommandRules{Blocked: s.EnvBlocked, AllowRoot: s.Confinement.AllowRoot, SharedUser: s.Confinement.User != ""}
}

// Check rejects variables and users that the rules do not allow. what names the request. Errors: Invalid.
func (r CommandRules) Check(what string, envNames []string, user string) error {
	return InvalidFields(what, r.fields("", envNames, user))
}

// fields returns the problems of a command's variables and user. Field names start with prefix.
func (r CommandRules) fields(prefix string, envNames []string, user string) (f []Field) {
	for _, name := range envNames {
		if problem := EnvProblem(name, r.Blocked); problem != "" {
			f = append(f, Field{prefix + "env." + name, problem})
		}
	}
	if user != "" { // "" is the sandbox's user
		if problem := userProblem(user, r.AllowRoot); problem != "" {
			f = append(f, Field{prefix + "user", problem})
		}
	}
	return f
}

// userProblem returns why a command must not run as user, "" if it may. Names are rejected because each image
// decides which numbers they stand for.
func userProblem(user string, allowRoot bool) string {
	switch uid, gid, ok := (Confinement{User: user}).ids(); {
	case !ok:
		return fmt.Sprintf("must be a numeric uid or uid:gid up to %d, not %q: user names of images are not resolved",
			maxUserID, user)
	case uid == KeeperID || gid == KeeperID:
		return fmt.Sprintf("must not be %d, the user of process 1 in every sandbox: choose another user", KeeperID)
	case (uid == 0 || gid == 0) && !allowRoot:
		return fmt.Sprintf(
			"must not be root, but %q is: choose another user, or set allow_root in the environment's confinement", user)
	}
	return ""
}

// KeeperID is the user and group of process 1 of a sandbox. Sandbox code never runs under it. It exists in every user
// namespace.
const KeeperID = 65533

// Users of sandboxes. Kernel limits, such as inotify instances and pending signals, apply per host user. With a
// separate user, a sandbox cannot use up its neighbours' limits.
const (
	// firstOwnID starts a range that no distribution, container manager or directory service assigns.
	// https://systemd.io/UIDS-GIDS, read 2026-11-22, lists 0x70000000 to 0x7FFFFFFF as unused.
	firstOwnID = 0x70000000
	ownIDs     = 1 << 28
	// firstNarrowID starts the range on engines with user namespaces, which map only 65,536 ids.
	firstNarrowID = 20_000
	narrowIDs     = 40_000
	// idsEach is the number of ids per sandbox: one for its code, one for its verifier.
	idsEach = 2
)

// Identity is the user and group of a sandbox's code.
type Identity struct {
	UID, GID int
	// Own: the user is meant for this sandbox alone. Among a thousand sandboxes on one engine, two get the same user with
	// a probability of 0.4%. They then share kernel limits and nothing else.
	Own bool
}

// Identity returns the user of a sandbox: the one that the confinement names, or one derived from the sandbox's
// id. Set narrow for engines with user namespaces.
func (c Confinement) Identity(sandboxID string, narrow bool) Identity {
	if uid, gid, ok := c.ids(); ok {
		return Identity{UID: uid, GID: gid}
	}
	first, count := uint64(firstOwnID), uint64(ownIDs)
	if narrow {
		first, count = firstNarrowID, narrowIDs
	}
	sum := sha256.Sum256([]byte(sandboxID))
	id := int(first + binary.BigEndian.Uint64(sum[:])%(count/idsEach)*idsEach)
	return Identity{UID: id, GID: id, Own: true}
}

// Verifier returns the user and group of the sandbox's verifier. A sandbox with a configured user has none,
// because the next id may belong to another user.
func (i Identity) Verifier() (id int, ok bool) { return i.UID + 1, i.Own }

// ExecAs is the role in which a command runs.
type ExecAs string

// AsVerifier runs a command whose result the sandbox's code cannot forge. The verifier has a separate user. All other
// programs of the sandbox are frozen while it runs. It uses nothing from the sandbox but the files that its program
// reads. If another program ran nevertheless, the command returns an error and no result.
const AsVerifier ExecAs = "verifier"

// asFields returns the problems of a command's role.
func (r ExecRequest) asFields() (f []Field) {
	bad := func(problem string) { f = append(f, Field{"as", problem}) }
	switch {
	case r.As == "":
	case r.As != AsVerifier:
		bad("must be verifier, if set")
	case r.User != "":
		bad("must not be set together with user: a verifier has a separate user")
	case r.Session != "":
		bad("must not be set for a command of a session: the session's state comes from code of the sandbox")
	}
	return f
}

// CheckVerifier rejects a verifier that the rules do not allow. Errors: Invalid.
func (r CommandRules) CheckVerifier(what string, envNames []string) error {
	f := r.fields("", envNames, "")
	if r.SharedUser {
		f = append(f, Field{"as", "requires a sandbox with a separate user: remove confinement.user from the environment, " +
			"and acquire the lease again"})
	}
	return InvalidFields(what, f)
}

// VerifierField is the error field for a backend that cannot run verifiers.
func VerifierField(b Backend) Field {
	return Field{"as", "must not be set: backend " + string(b) + " runs no verifiers"}
}
