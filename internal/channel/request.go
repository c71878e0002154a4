package channel

import (
	"time"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/guest/wire"
)

// Op is what a request asks for.
type Op string

// The operations. Those that change something are carried out at most once for each Request.ID: a repetition gets the
// result of the first, or ProblemConflict while the first is under way.
const (
	// OpExec runs a command to its end, and OpProcess a process that may run as long as the sandbox. Losing the session
	// does not end them: OpFollow continues where the output broke off.
	OpExec    Op = "exec"
	OpProcess Op = "process"
	// OpVerify runs a command as OpExec does, as a user of its own, while all other programs of the sandbox are stopped. It
	// fails where one of them ran meanwhile. A guest of an earlier release refuses it.
	OpVerify Op = "verify"
	// OpFollow sends what a command has written from an offset on, and its result once it has ended.
	OpFollow Op = "follow"
	// OpEnd ends a command and all it started.
	OpEnd Op = "end"
	// OpPort returns once a program listens on a TCP port of the sandbox's loopback address.
	OpPort Op = "port"
	// OpPut unpacks its input, a tar stream. OpGet packs a path.
	OpPut Op = "put"
	OpGet Op = "get"
	// OpFile works on one path.
	OpFile Op = "file"
	// OpSecrets replaces the files in the secrets directory with those of its input, a tar stream.
	OpSecrets Op = "secrets"
	// OpSave packs a directory while no program of the sandbox runs.
	OpSave Op = "save"
	// OpAssign gives a sandbox of a warm pool to a lease, once. The result says that its deadline, config.json and variables
	// are in force. Assigning again to the same lease succeeds; to another one, it is ProblemConflict.
	OpAssign Op = "assign"
	// OpUsage writes a wire.Usage, as JSON.
	OpUsage Op = "usage"
	// OpShutdown ends the sandbox at once. There is no answer: the carrier breaks.
	OpShutdown Op = "shutdown"
)

// Request is the first message of a stream.
type Request struct {
	Op Op `json:"op"`
	// ID names the command, or the operation. Each caller chooses ids that no other uses.
	ID     string            `json:"id"`
	Exec   *Exec             `json:"exec,omitempty"`   // of OpExec, OpProcess and OpVerify
	Follow *Follow           `json:"follow,omitempty"` // of OpFollow
	Path   []byte            `json:"path,omitempty"`   // of OpPut, OpGet and OpSave: bytes, which need not be UTF-8
	File   *wire.FileRequest `json:"file,omitempty"`   // of OpFile
	Save   *Save             `json:"save,omitempty"`   // of OpSave
	Port   int               `json:"port,omitempty"`   // of OpPort
	Lease  *wire.Lease       `json:"lease,omitempty"`  // of OpAssign
	// Life makes a request to start a command the repetition of one that was lost. A sandbox that has another life since, or
	// may have forgotten the id, answers ProblemNotFound. One that has started the command answers ProblemConflict. The
	// repetition comes within RepeatWithin of the first request.
	Life string `json:"life,omitempty"`
	// ReportData asks for the fingerprint of /data and the CPU time in the result.
	ReportData bool `json:"report_data,omitempty"`
}

// RepeatWithin is how long after a first request a sandbox surely knows its id. It is half of what a sandbox remembers.
const RepeatWithin = 20 * time.Second

// runs tells whether a request starts a program.
func (r Request) runs() bool { return r.Op == OpExec || r.Op == OpProcess || r.Op == OpVerify }

// changes tells whether a request is carried out at most once for its id.
func (r Request) changes() bool {
	switch r.Op {
	case OpExec, OpProcess, OpVerify, OpPut, OpSecrets:
		return true
	case OpFile:
		return r.File != nil && (r.File.Op == wire.FileWrite || r.File.Op == wire.FileRemove)
	default:
		return false
	}
}

// Exec is a command or process to start.
type Exec struct {
	// Args are the program and its arguments. With Shell, they are one line for the image's shell.
	Args  []string `json:"args"`
	Shell bool     `json:"shell,omitempty"`
	Cwd   string   `json:"cwd"`
	// User is a numeric user and group, as uid:gid; "" is the sandbox's own.
	User string `json:"user,omitempty"`
	// Env is set beside the sandbox's own variables.
	Env map[string]string `json:"env,omitempty"`
	// Timeout ends a command; a process has none.
	Timeout time.Duration `json:"timeout,omitempty"`
	// Stdin says that input follows. Without, the command reads an empty input.
	Stdin bool `json:"stdin,omitempty"`
}

// Follow says what is wanted of a command's output.
type Follow struct {
	StdoutOffset int64 `json:"stdout_offset,omitempty"`
	StderrOffset int64 `json:"stderr_offset,omitempty"`
	// Now: what is there is sent, and no more.
	Now bool `json:"now,omitempty"`
	// Quiet: only the result is wanted.
	Quiet bool `json:"quiet,omitempty"`
	// Feeds: the command's input follows once more, from its beginning.
	Feeds bool `json:"feeds,omitempty"`
}

// Save says when a directory is packed.
type Save struct {
	// Unless is a fingerprint: what has it is not packed.
	Unless string `json:"unless,omitempty"`
	// Limit is in bytes; 0 packs any size.
	Limit int64 `json:"limit,omitempty"`
	// End ends all programs first, for good.
	End bool `json:"end,omitempty"`
}
