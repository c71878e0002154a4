package sandbox

import (
	"fmt"
	"io"
	"maps"
	"reflect"
	"regexp"
	"slices"
	"time"
)

// Limits of processes.
const (
	// MaxDeclaredProcesses limits the processes that an environment declares. MaxProcesses limits the processes
	// of a sandbox that have not ended.
	MaxDeclaredProcesses = 16
	MaxProcesses         = 32
	// MaxProcessLog is the size of the retained end of a process's log, in bytes. A sandbox that cannot create
	// files keeps 1 MiB in memory.
	MaxProcessLog = 8 << 20
	// MaxProcessWait is the longest wait, DefaultProcessWait the default.
	MaxProcessWait     = Duration(time.Hour)
	DefaultProcessWait = Duration(time.Minute)
	// maxLogPattern limits the regular expression of a wait, in bytes.
	maxLogPattern = 1024
)

// Restart says what happens after a process exits on its own.
type Restart string

// The restarts. Before each restart there is a pause. It grows from half a second to 30 s, and is reset once
// the process has run for 30 s.
const (
	RestartNo     Restart = "no"
	RestartAlways Restart = "always"
)

// ProcessSpec is a process that runs as long as its sandbox. It does not count as activity: it keeps no sandbox
// awake and no lease alive. It has no timeout.
type ProcessSpec struct {
	// Name is 1 to 63 characters of a-z, 0-9, '.', '_' and '-', starting with a letter or digit.
	Name    string            `json:"name" doc:"1 to 63 characters of a-z, 0-9, '.', '_' and '-', starting with a letter or digit."`
	Command []string          `json:"command" doc:"The program and its arguments, run without a shell."`
	Env     map[string]string `json:"env,omitempty" doc:"Environment variables in addition to those of the sandbox. The ledger stores them as long as the process may start: do not put secrets here."`
	Cwd     string            `json:"cwd,omitempty" doc:"Working directory in /workspace or /data. Default /workspace."`
	User    string            `json:"user,omitempty" doc:"Numeric uid or uid:gid. Root requires confinement.allow_root. Default: the sandbox's user."`
	Restart Restart           `json:"restart,omitempty" enum:"no,always" doc:"Whether it restarts after it exits on its own. Default no. A declared process always restarts after its sandbox was stopped."`
	// Endpoint makes the process an agent; nil if it does not serve HTTP.
	Endpoint *Endpoint `json:"endpoint,omitempty" doc:"Where the process serves HTTP: it is then an agent, which GET /v1/agents lists. Default: none."`
}

// Normalize fills in defaults and checks a process by the rules of its environment. Errors: Invalid.
func (p ProcessSpec) Normalize(rules CommandRules) (ProcessSpec, error) {
	orDefault(&p.Cwd, "/workspace")
	orDefault(&p.Restart, RestartNo)
	f := p.fields("", rules)
	if f == nil {
		p.Cwd, _ = CleanPath(p.Cwd) // fields has checked it
	}
	return p, InvalidFields("process", f)
}

// fields checks a process. Field names start with prefix.
func (p ProcessSpec) fields(prefix string, rules CommandRules) []Field {
	f := checkEnvironmentID(nil, prefix+"name", p.Name)
	f = append(f, commandFields(prefix, p.Command, p.Env)...)
	if p.Cwd != "" {
		if _, err := CleanPath(p.Cwd); err != nil {
			f = append(f, Field{prefix + "cwd", err.Error()})
		}
	}
	if p.Restart != "" && p.Restart != RestartNo && p.Restart != RestartAlways {
		f = append(f, Field{prefix + "restart", fmt.Sprintf("must be no or always, not %q", p.Restart)})
	}
	if p.Endpoint != nil {
		f = append(f, p.Endpoint.fields(prefix+"endpoint.")...)
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
			f = append(f, Field{prefix + "name", fmt.Sprintf("%q is already the name of another process", p.Name)})
		}
		seen[p.Name] = true
	}
	return f
}

// ProcessState is the state of a process.
type ProcessState string

// The states.
const (
	// ProcessPending: it starts when its sandbox is awake and NextStartAt has passed.
	ProcessPending ProcessState = "pending"
	// ProcessRunning: the service started it. While the sandbox is paused, the process is frozen.
	ProcessRunning ProcessState = "running"
	// ProcessExited: it exited on its own and does not restart.
	ProcessExited ProcessState = "exited"
	// ProcessFailed: it could not run, or its result is unknown.
	ProcessFailed ProcessState = "failed"
	// ProcessKilled: KillProcess ended it.
	ProcessKilled ProcessState = "killed"
	// ProcessStopped: it ended with its sandbox, which was stopped or destroyed.
	ProcessStopped ProcessState = "stopped"
)

// Live reports whether a process runs or will run.
func (s ProcessState) Live() bool { return s == ProcessPending || s == ProcessRunning }

// Process is a process of a lease's sandbox in its current state. It is kept as long as its sandbox.
type Process struct {
	Name       string   `json:"name"`
	LeaseID    string   `json:"lease_id"`
	Generation int64    `json:"generation"`
	SandboxID  string   `json:"sandbox_id"`
	Command    []string `json:"command"`
	// EnvNames are the names of its variables. Answers never contain the values.
	EnvNames []string `json:"env_names,omitempty"`
	Cwd      string   `json:"cwd"`
	User     string   `json:"user,omitempty"`
	Restart  Restart  `json:"restart" enum:"no,always"`
	// Endpoint is where it serves HTTP, nil if it is not an agent.
	Endpoint *Endpoint `json:"endpoint,omitempty"`
	// Declared: the environment declared it when the lease's sandbox became ready.
	Declared bool         `json:"declared,omitempty" doc:"The environment declares it."`
	State    ProcessState `json:"state" enum:"pending,running,exited,failed,killed,stopped" doc:"pending: it starts at next_start_at."`
	// Starts is the number of starts, StartedAt the time of the latest.
	Starts    int64     `json:"starts" doc:"Number of starts."`
	StartedAt time.Time `json:"started_at,omitzero" doc:"Time of the latest start."`
	// NextStartAt is the earliest next start of a pending process.
	NextStartAt time.Time `json:"next_start_at,omitzero" doc:"The earliest next start of a pending process."`
	// ExitedAt, ExitCode and OOMKilled describe the latest exit. ExitCode is 126 or 127 if it could not start, and 128 + n
	// if signal n ended it; nil before the first exit, after KillProcess, and if it is unknown. Error then says why.
	ExitedAt  time.Time `json:"exited_at,omitzero"`
	ExitCode  *int      `json:"exit_code,omitempty" doc:"The exit code of the latest exit. Absent before that, after a kill, and where it is not known, as error says."`
	OOMKilled bool      `json:"oom_killed,omitempty"`
	// Error says why it failed, or why it last ended.
	Error string `json:"error,omitempty" doc:"Why it failed, or why it last ended."`
}

// ProcessRef names a process of a lease's current generation.
type ProcessRef struct {
	LeaseRef
	Name string
}

// ProcessWait asks to wait for a process. Exactly one of Log, Port and Exit must be set.
type ProcessWait struct {
	ProcessRef
	// Log is a regular expression (RE2) that a line of the log must match. Earlier lines count too. A line has
	// up to 64 KiB, without its end; a longer line is matched in pieces.
	Log string
	// Port is a TCP port on the sandbox's 127.0.0.1 that must accept a connection. Any program may listen on
	// it.
	Port int
	// Exit waits until the process has ended and will not restart.
	Exit bool
	// Timeout limits the wait. Default DefaultProcessWait, at most MaxProcessWait.
	Timeout Duration
}

// Normalize fills in defaults, checks the request and compiles Log. Errors: Invalid.
func (w ProcessWait) Normalize() (ProcessWait, *regexp.Regexp, error) {
	orDefault(&w.Timeout, DefaultProcessWait)
	var f []Field
	var pattern *regexp.Regexp
	const one = "set exactly one of log, port and exit"
	switch {
	case w.Log == "" && w.Port == 0 && !w.Exit:
		f = append(f, Field{"log", one})
	case w.Log != "" && w.Port != 0:
		f = append(f, Field{"port", one})
	case w.Exit && (w.Log != "" || w.Port != 0):
		f = append(f, Field{"exit", one})
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

// ProcessWaited is the result of a wait.
type ProcessWaited struct {
	Process
	// Line is the matching line. Offset is the position in the log after it.
	Line   string `json:"line,omitempty"`
	Offset int64  `json:"offset,omitempty"`
}

// LogRequest asks for the log of a process: standard output and standard error of its latest start, in the
// order written.
type LogRequest struct {
	ProcessRef
	// Offset is the first byte to return, from 0. Offsets count everything that was written.
	Offset int64
	// Follow continues until the process ends. Without it, only existing output is returned.
	Follow bool
}

// ProcessLog is an open log of a process or companion. The caller must close it.
type ProcessLog struct {
	io.ReadCloser
	// Offset is the offset of the first byte. It is larger than requested if that byte is no longer kept, and
	// smaller if less has been written.
	Offset int64
}

// Differs returns the fields that differ from an existing process, nil if none does. It does not compare the
// values of variables, because they may not be stored.
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
		{"endpoint", reflect.DeepEqual(p.Endpoint, is.Endpoint)},
	} {
		if !c.same {
			f = append(f, Field{c.name, "differs from that of the existing process with this name"})
		}
	}
	return f
}

// Limits of an environment's post-start commands.
const (
	MaxPostStart        = 16
	MaxPostStartTimeout = Duration(time.Hour) // per command
	MaxPostStartBytes   = 32 << 10            // all arguments and variables together
)

// PostStart is a command that runs once in each sandbox, before its lease is ready.
type PostStart struct {
	Command []string          `json:"command" doc:"The program and its arguments, run without a shell."`
	Env     map[string]string `json:"env,omitempty" doc:"Environment variables of the command, in addition to those of the sandbox. Do not put secrets here."`
	User    string            `json:"user,omitempty" doc:"Numeric uid or uid:gid. Root requires confinement.allow_root. Default: the sandbox's user."`
	Timeout Duration          `json:"timeout,omitempty" doc:"After this time the command, everything it started, and the lease end. Default 2m, at most 1h."`
}

// PostStartID is the id of the nth post-start command of a sandbox, from 0. It is the same in every attempt to
// create the sandbox.
func PostStartID(sandboxID string, n int) string {
	return fmt.Sprintf("%s-post-start-%d", sandboxID, n)
}

// Request returns the exec request of the nth post-start command of a sandbox.
func (p PostStart) Request(sandboxID string, n int) ExecRequest {
	return ExecRequest{
		ID:      PostStartID(sandboxID, n),
		Detach:  true,
		Command: p.Command,
		Env:     p.Env,
		User:    p.User,
		Timeout: p.Timeout,
	}
}

// withPostStartDefaults returns the commands with all defaults filled in.
func withPostStartDefaults(commands []PostStart) []PostStart {
	commands = slices.Clone(commands)
	for i := range commands {
		orDefault(&commands[i].Timeout, DefaultExecTimeout)
	}
	return commands
}

// postStartFields returns the problems of the post-start commands.
func (s EnvironmentSpec) postStartFields() (f []Field) {
	if n := len(s.PostStart); n > MaxPostStart {
		f = append(f, Field{"post_start", fmt.Sprintf(
			"must be at most %d commands, not %d: combine commands in a script", MaxPostStart, n)})
	}
	total := 0
	for i, p := range s.PostStart {
		at := fmt.Sprintf("post_start[%d].", i)
		if len(p.Command) == 0 || p.Command[0] == "" {
			f = append(f, Field{at + "command", "must name a program"})
		}
		if p.Timeout < Duration(time.Second) || p.Timeout > MaxPostStartTimeout {
			f = append(f, Field{at + "timeout", fmt.Sprintf("must be between 1s and %s", MaxPostStartTimeout)})
		}
		for _, arg := range p.Command {
			total += len(arg)
		}
		f = append(f, s.Rules().fields(at, slices.Sorted(maps.Keys(p.Env)), p.User)...)
		total += envBytes(p.Env)
	}
	if total > MaxPostStartBytes {
		f = append(f, Field{"post_start", fmt.Sprintf("has %d bytes of arguments and variables, but at most %d are "+
			"allowed: move a script into the image", total, MaxPostStartBytes)})
	}
	return f
}
