package sandbox

import (
	"fmt"
	"io"
	"maps"
	"path"
	"slices"
	"strings"
	"time"
)

// Limits of one command's collected output, and the exit code of a command that ran out of time
// (as timeout(1) has it).
const (
	DefaultOutputLimit = 1 << 20 // bytes of each stream
	ExitTimeout        = 124
)

// Roots are the only directories that the file API and a working directory may lie in.
var Roots = []string{"/workspace", "/data"}

// ExecRequest asks for a command to be run in a sandbox.
type ExecRequest struct {
	// ID names the command: 1 to 63 characters of a-z, 0-9, '.', '_' and '-', the first a letter or
	// digit. Without one the service issues it. An id names one command for ever.
	ID string
	// Detach: the command goes on when its caller does not, and takes no Stdin.
	Detach bool
	// Command is the program and its arguments; no shell is involved.
	Command []string
	// Session is the session that the command is run in, "" for none. Variables and directory that are not
	// named here are then the session's, and its user is.
	Session string
	// Shell is a line for the image's /bin/sh, in place of Command. What it exports and where it ends is
	// the session's from then on. It needs a session.
	Shell string
	// Source is who gives the command to a session. Default: SourceAgent.
	Source EventSource
	Env    map[string]string
	// Cwd must lie in one of Roots. Default: /workspace, or the session's.
	Cwd string
	// User is "uid" or "uid:gid" in numbers; the group's default is the user's number. Default: the sandbox's
	// user. Root is refused unless the environment's confinement allows it.
	User string
	// As is AsVerifier, or "" for a command like any other.
	As ExecAs
	// Timeout ends the command and all it started; its exit code is then ExitTimeout.
	// Default: DefaultExecTimeout; at most 24 h. There is no least: a probe may have a second.
	Timeout Duration
	// Stdin is read to its end when not nil.
	Stdin io.Reader
	// Stdout and Stderr receive output as it comes. When nil, it is collected in the result, up
	// to OutputLimit bytes of each stream (default DefaultOutputLimit).
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
		f = append(f, Field{"id", "must be 1 to 63 characters of a-z, 0-9, '.', '_' and '-', and begin with a letter or digit"})
	}
	if r.Detach && r.Stdin != nil {
		f = append(f, Field{"stdin", "cannot be given to a command that is detached: write a file, and let the command read it"})
	}
	if r.Shell == "" && (len(r.Command) == 0 || r.Command[0] == "") {
		f = append(f, Field{"command", "must name a program"})
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
	if r.Timeout < 0 || r.Timeout > Duration(24*60*60*1e9) {
		f = append(f, Field{"timeout", "must be between 0s and 24h"})
	}
	f = append(f, AnyRules().fields("", slices.Sorted(maps.Keys(r.Env)), r.User)...)
	return r, InvalidFields("exec", f)
}

// CheckAttached refuses a request to wait for a command that is detached. Errors: Invalid.
func (r ExecRequest) CheckAttached() error {
	if !r.Detach {
		return nil
	}
	return InvalidFields("exec", []Field{{"detach", "a detached command is started, and asked for later (StartExec)"}})
}

// CleanPath returns the absolute path inside a sandbox that p names, relative to /workspace, and
// refuses what lies outside of Roots. It cannot see symbolic links: those are checked in the sandbox.
func CleanPath(p string) (string, error) {
	if strings.ContainsRune(p, 0) {
		return "", fmt.Errorf("must not contain a NUL byte")
	}
	if !path.IsAbs(p) {
		p = "/workspace/" + p
	}
	p = path.Clean(p)
	if !slices.ContainsFunc(Roots, func(root string) bool { return p == root || strings.HasPrefix(p, root+"/") }) {
		return "", fmt.Errorf("%q lies outside of /workspace and /data", p)
	}
	return p, nil
}

// ExecResult is how a command ended.
type ExecResult struct {
	// ExecID is the command's id, under which the service keeps it. A backend leaves it empty.
	ExecID string
	// ExitCode is the program's own, ExitTimeout after a timeout, 126 or 127 when it could not be
	// started, 128 + n when signal n ended it.
	ExitCode int
	Stdout   []byte
	Stderr   []byte
	Duration Duration
	TimedOut bool
	// OOMKilled: the kernel ended a process of the sandbox for want of memory during the command.
	OOMKilled bool
	// Truncated: output beyond the limit was dropped.
	Truncated bool
	// StdoutBytes and StderrBytes are what the command wrote, as far as the backend knows.
	StdoutBytes, StderrBytes int64
	// Shell is what a line of the shell has left behind, nil when its shell did not tell. The service
	// keeps it for the session, and returns none.
	Shell *ShellState
	// CPUTime is what the whole sandbox has used since it started, as of the command's end; 0 where its backend does
	// not tell. The service counts it, and returns none.
	CPUTime time.Duration
}

// Replay asks for the output of a command from offsets on, and for what it writes until it ends.
type Replay struct {
	// ID is the command's.
	ID string
	// Stdout and Stderr receive what was written after the first StdoutOffset and StderrOffset bytes.
	Stdout, Stderr             io.Writer
	StdoutOffset, StderrOffset int64
	// Now: what is there is wanted, and no more. The result is empty then.
	Now bool
	// Begins, where it is set, is told the offset of the byte that Stdout gets next, before the first one and
	// wherever bytes are left out that are no longer kept. A process's log has such gaps, and begins with it
	// at once; a command's output has none. It fails the reading by an error.
	Begins func(offset int64) error
}
