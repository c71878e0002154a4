package sandbox

import (
	"fmt"
	"io"
	"maps"
	"regexp"
	"slices"
	"time"
)

// Limits of processes.
const (
	// MaxDeclaredProcesses and MaxProcesses bound those that an environment declares, and those of a
	// sandbox that have not ended.
	MaxDeclaredProcesses = 16
	MaxProcesses         = 32
	// MaxProcessLog is how much is kept of what a process writes, in bytes: the latest. A sandbox in
	// which no file can be made keeps 1 MiB in memory.
	MaxProcessLog = 8 << 20
	// MaxProcessWait bounds one wait, DefaultProcessWait is the default.
	MaxProcessWait     = Duration(time.Hour)
	DefaultProcessWait = Duration(time.Minute)
	// maxLogPattern bounds the expression that a wait looks for, in bytes.
	maxLogPattern = 1024
)

// Restart says what becomes of a process that ends by itself.
type Restart string

// The restarts. One that is started again has a growing pause before it, from half a second to 30 s, which
// begins anew once it has run for 30 s.
const (
	RestartNo     Restart = "no"
	RestartAlways Restart = "always"
)

// ProcessSpec is a process that runs as long as its sandbox does. It is not activity: it keeps no sandbox
// awake and no lease alive, and it has no timeout.
type ProcessSpec struct {
	// Name is 1 to 63 characters of a-z, 0-9, '.', '_' and '-', the first a letter or digit.
	Name    string            `json:"name" doc:"1 to 63 characters of a-z, 0-9, '.', '_' and '-', the first a letter or digit."`
	Command []string          `json:"command" doc:"The program and its arguments; no shell is involved."`
	Env     map[string]string `json:"env,omitempty" doc:"Environment variables beside those of the sandbox. They are kept in the ledger as long as the process may start: never secrets."`
	Cwd     string            `json:"cwd,omitempty" doc:"Below /workspace or /data. Default /workspace."`
	User    string            `json:"user,omitempty" doc:"uid or uid:gid in numbers; root needs the confinement's allow_root. Default: the sandbox's user."`
	Restart Restart           `json:"restart,omitempty" enum:"no,always" doc:"What becomes of it when it ends by itself. Default no; a declared process starts again in any case when its sandbox was stopped meanwhile."`
}

// Normalize fills in defaults and checks a process by the rules of its sandbox. Errors: Invalid.
func (p ProcessSpec) Normalize(rules CommandRules) (ProcessSpec, error) {
	orDefault(&p.Cwd, "/workspace")
	orDefault(&p.Restart, RestartNo)
	f := p.fields("", rules)
	if f == nil {
		p.Cwd, _ = CleanPath(p.Cwd) // which fields has checked
	}
	return p, InvalidFields("process", f)
}

// fields checks a process whose fields are named below prefix.
func (p ProcessSpec) fields(prefix string, rules CommandRules) []Field {
	f := checkEnvironmentID(nil, prefix+"name", p.Name)
	if len(p.Command) == 0 || p.Command[0] == "" {
		f = append(f, Field{prefix + "command", "must name a program"})
	}
	if p.Cwd != "" {
		if _, err := CleanPath(p.Cwd); err != nil {
			f = append(f, Field{prefix + "cwd", err.Error()})
		}
	}
	if p.Restart != "" && p.Restart != RestartNo && p.Restart != RestartAlways {
		f = append(f, Field{prefix + "restart", fmt.Sprintf("must be no or always, not %q", p.Restart)})
	}
	return append(f, rules.fields(prefix, slices.Sorted(maps.Keys(p.Env)), p.User)...)
}

// processFields checks the processes that an environment declares.
func (s EnvironmentSpec) processFields() (f []Field) {
	if len(s.Processes) > MaxDeclaredProcesses {
		f = append(f, Field{"processes", fmt.Sprintf("must be at most %d, not %d", MaxDeclaredProcesses, len(s.Processes))})
	}
	seen := make(map[string]bool, len(s.Processes))
	for i, p := range s.Processes {
		prefix := fmt.Sprintf("processes[%d].", i)
		f = append(f, p.fields(prefix, s.Rules())...)
		if seen[p.Name] {
			f = append(f, Field{prefix + "name", fmt.Sprintf("%q is the name of another process", p.Name)})
		}
		seen[p.Name] = true
	}
	return f
}

// ProcessState is where a process stands.
type ProcessState string

// The states.
const (
	// ProcessPending: it is started once its sandbox is awake and NextStartAt has come.
	ProcessPending ProcessState = "pending"
	// ProcessRunning: the sandbox was told to run it. While the sandbox sleeps by pause, it stands still.
	ProcessRunning ProcessState = "running"
	// ProcessExited: it ended by itself. It is not started again.
	ProcessExited ProcessState = "exited"
	// ProcessFailed: it could not be run, or it is not known how it ended.
	ProcessFailed ProcessState = "failed"
	// ProcessKilled: KillProcess ended it.
	ProcessKilled ProcessState = "killed"
	// ProcessStopped: it ended with its sandbox, which was stopped or destroyed.
	ProcessStopped ProcessState = "stopped"
)

// Live reports whether a process runs or will.
func (s ProcessState) Live() bool { return s == ProcessPending || s == ProcessRunning }

// Process is a process of a lease's sandbox, as it stands. It is kept as long as its sandbox.
type Process struct {
	Name       string   `json:"name"`
	LeaseID    string   `json:"lease_id"`
	Generation int64    `json:"generation"`
	SandboxID  string   `json:"sandbox_id"`
	Command    []string `json:"command"`
	// EnvNames are the variables that it was given; answers hold no values.
	EnvNames []string `json:"env_names,omitempty"`
	Cwd      string   `json:"cwd"`
	User     string   `json:"user,omitempty"`
	Restart  Restart  `json:"restart" enum:"no,always"`
	// Declared: its environment declared it when the lease's sandbox became ready.
	Declared bool         `json:"declared,omitempty"`
	State    ProcessState `json:"state" enum:"pending,running,exited,failed,killed,stopped"`
	// Starts counts how often it was started, StartedAt is when it was last.
	Starts    int64     `json:"starts"`
	StartedAt time.Time `json:"started_at,omitzero"`
	// NextStartAt is the earliest moment at which a pending one is started.
	NextStartAt time.Time `json:"next_start_at,omitzero"`
	// ExitedAt, ExitCode and OOMKilled are of its last end. 126 or 127: it could not be started; 128 + n:
	// signal n ended it.
	ExitedAt  time.Time `json:"exited_at,omitzero"`
	ExitCode  int       `json:"exit_code"`
	OOMKilled bool      `json:"oom_killed,omitempty"`
	// Error says why it failed, or why it ended last.
	Error string `json:"error,omitempty"`
}

// ProcessRef names a process of a lease's current generation.
type ProcessRef struct {
	LeaseRef
	Name string
}

// ProcessWait asks to wait for a process. Exactly one of Log, Port and Exit is set.
type ProcessWait struct {
	ProcessRef
	// Log is a regular expression (RE2) that a line of its log has to match. Lines that were written before
	// count. A line is up to 64 KiB, without its end; one that is longer is matched in pieces.
	Log string
	// Port is a TCP port of the sandbox's 127.0.0.1 that must accept a connection, from any program.
	Port int
	// Exit waits until it has ended and is not started again.
	Exit bool
	// Timeout bounds the wait; default DefaultProcessWait, at most MaxProcessWait.
	Timeout Duration
}

// Normalize fills in defaults, checks the request and compiles Log. Errors: Invalid.
func (w ProcessWait) Normalize() (ProcessWait, *regexp.Regexp, error) {
	orDefault(&w.Timeout, DefaultProcessWait)
	var f []Field
	var pattern *regexp.Regexp
	wanted := 0
	for _, is := range []bool{w.Log != "", w.Port != 0, w.Exit} {
		if is {
			wanted++
		}
	}
	if wanted != 1 {
		f = append(f, Field{"until", "must be exactly one of log, port and exit"})
	}
	if w.Log != "" {
		var err error
		if pattern, err = regexp.Compile(w.Log); err != nil {
			f = append(f, Field{"log", "must be a regular expression (RE2): " + err.Error()})
		} else if len(w.Log) > maxLogPattern {
			f = append(f, Field{"log", fmt.Sprintf("must be at most %d bytes", maxLogPattern)})
		}
	}
	if w.Port < 0 || w.Port > 65535 {
		f = append(f, Field{"port", "must be between 1 and 65535"})
	}
	if w.Timeout < 0 || w.Timeout > MaxProcessWait {
		f = append(f, Field{"timeout", fmt.Sprintf("must be between 0s and %s", MaxProcessWait)})
	}
	return w, pattern, InvalidFields("wait", f)
}

// ProcessWaited is what a wait came to.
type ProcessWaited struct {
	Process
	// Line is the line that matched, and Offset where the log goes on after it.
	Line   string `json:"line,omitempty"`
	Offset int64  `json:"offset,omitempty"`
}

// LogRequest asks for the log of a process: what its latest start wrote to standard output and standard
// error, as it came.
type LogRequest struct {
	ProcessRef
	// Offset is the first byte that is wanted, from 0. Offsets count all that was written.
	Offset int64
	// Follow goes on to the process's end; without it there is what is there.
	Follow bool
}

// ProcessLog is a log that is read. It is to be closed.
type ProcessLog struct {
	io.ReadCloser
	// Offset is that of the first byte: later than the one that was asked for where that is no longer kept,
	// and earlier where so much has not been written.
	Offset int64
}

// Differs names what is different in a process that exists, nil when nothing is. The values of its variables
// are not compared: they may not be kept.
func (p ProcessSpec) Differs(is Process) (f []Field) {
	for _, c := range []struct {
		name string
		same bool
	}{
		{"command", slices.Equal(p.Command, is.Command)},
		{"env", slices.Equal(slices.Sorted(maps.Keys(p.Env)), is.EnvNames)},
		{"cwd", p.Cwd == is.Cwd},
		{"user", p.User == is.User},
		{"restart", p.Restart == is.Restart},
	} {
		if !c.same {
			f = append(f, Field{c.name, "is another one than that of the process that has the name"})
		}
	}
	return f
}
