package channel

import (
	"time"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/guest/wire"
)

// Op is the operation of a request.
type Op string

// The operations. Those that change something are carried out at most once for each Request.ID: a repetition
// gets the result of the first, or ProblemConflict while the first is running.
const (
	// OpExec runs a command to its end. OpProcess runs a process that may last as long as the sandbox. Both survive the
	// loss of the session: OpFollow continues where the output broke off.
	OpExec    Op = "exec"
	OpProcess Op = "process"
	// OpVerify runs a command like OpExec, as a separate user, while all other programs of the sandbox are
	// stopped. It fails if one of them ran meanwhile. A guest of an earlier release refuses it.
	OpVerify Op = "verify"
	// OpFollow sends a command's output from an offset on, and its result at the end.
	OpFollow Op = "follow"
	// OpEnd ends a command and everything that it started.
	OpEnd Op = "end"
	// OpPort returns once a program listens on a TCP port of the sandbox's loopback address.
	OpPort Op = "port"
	// OpConnect connects to a TCP port of the sandbox's loopback address, as soon as a program listens there.
	// Begins of 0 says that the connection is open; input and stdout are its two directions. The end of the
	// input closes one, the program's end of its side is the end of the operation. A lost session breaks it.
	OpConnect Op = "connect"
	// OpPut unpacks its input, a tar stream. OpGet packs a path.
	OpPut Op = "put"
	OpGet Op = "get"
	// OpFile works on one path.
	OpFile Op = "file"
	// OpSecrets replaces the files in the secrets directory with those of its input, a tar stream.
	OpSecrets Op = "secrets"
	// OpSave packs a directory while all programs of the sandbox are frozen.
	OpSave Op = "save"
	// OpAssign gives a sandbox of a warm pool to a lease, once. The result means that deadline, config.json
	// and variables are in force. Repeating it for the same lease succeeds; for another lease it is
	// ProblemConflict.
	OpAssign Op = "assign"
	// OpUsage writes a wire.Usage, as JSON.
	OpUsage Op = "usage"
	// OpShutdown ends the sandbox at once. There is no answer: the carrier breaks.
	OpShutdown Op = "shutdown"
)

// Request is the first message of a stream.
type Request struct {
	Op Op `json:"op"`
	// ID names the command or the operation. Callers choose unique ids.
	ID     string            `json:"id"`
	Exec   *Exec             `json:"exec,omitempty"`   // for OpExec, OpProcess and OpVerify
	Follow *Follow           `json:"follow,omitempty"` // for OpFollow
	Path   []byte            `json:"path,omitempty"`   // for OpPut, OpGet and OpSave: bytes, not always UTF-8
	File   *wire.FileRequest `json:"file,omitempty"`   // for OpFile
	Save   *Save             `json:"save,omitempty"`   // for OpSave
	Port   int               `json:"port,omitempty"`   // for OpPort and OpConnect
	Lease  *wire.Lease       `json:"lease,omitempty"`  // for OpAssign
	// Life marks a request to start a command as the repetition of a lost one. A sandbox whose life has
	// changed, or that may have forgotten the id, answers ProblemNotFound. One that has started the command
	// answers ProblemConflict. The repetition must come within RepeatWithin of the first request.
	Life string `json:"life,omitempty"`
	// ReportData asks for the fingerprint of /data and the CPU time in the result.
	ReportData bool `json:"report_data,omitempty"`
}

// RepeatWithin is how long after a first request a sandbox certainly knows its id. A sandbox remembers ids for twice
// that time.
const RepeatWithin = 20 * time.Second

// Runs reports whether an operation starts a program.
func (o Op) Runs() bool { return o == OpExec || o == OpProcess || o == OpVerify }

// changes reports whether a request is carried out at most once for its id.
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
	// Args are the program and its arguments. With Shell, it is one line for the image's shell.
	Args  []string `json:"args"`
	Shell bool     `json:"shell,omitempty"`
	Cwd   string   `json:"cwd"`
	// User is a numeric uid:gid; "" means the sandbox's user.
	User string `json:"user,omitempty"`
	// Env is set in addition to the sandbox's variables.
	Env map[string]string `json:"env,omitempty"`
	// Timeout ends a command. A process has none.
	Timeout time.Duration `json:"timeout,omitempty"`
	// Stdin says that input follows. Without, the command reads an empty input.
	Stdin bool `json:"stdin,omitempty"`
}

// Follow says which part of a command's output to send.
type Follow struct {
	StdoutOffset int64 `json:"stdout_offset,omitempty"`
	StderrOffset int64 `json:"stderr_offset,omitempty"`
	// Now sends the existing output only.
	Now bool `json:"now,omitempty"`
	// Quiet sends the result only.
	Quiet bool `json:"quiet,omitempty"`
	// Feeds means that the command's input follows once more, from its beginning.
	Feeds bool `json:"feeds,omitempty"`
}

// Save says when and how a directory is packed.
type Save struct {
	// Unless is a fingerprint. A directory that has it is not packed.
	Unless string `json:"unless,omitempty"`
	// Limit is in bytes; 0 packs any size.
	Limit int64 `json:"limit,omitempty"`
	// End first ends all programs, permanently.
	End bool `json:"end,omitempty"`
}
