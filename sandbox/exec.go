package sandbox

import (
	"time"
)

// MaxKeptOutput bounds what is kept of one stream of a command, in bytes. What it writes beyond is passed
// on to who listens, and not kept.
const MaxKeptOutput = 16 << 20

// ExecState is where a command stands.
type ExecState string

// The states. The last three are final.
const (
	ExecRunning ExecState = "running"
	// ExecFinished: it ended by itself or by its timeout, and it is known how.
	ExecFinished ExecState = "finished"
	// ExecFailed: it could not be run, or it is not known how it ended.
	ExecFailed ExecState = "failed"
	// ExecCancelled: it was ended, by CancelExec, by the end of its lease, or because its caller went away.
	ExecCancelled ExecState = "cancelled"
)

// Exec is one command, as it stands. It is kept as long as its sandbox.
type Exec struct {
	ID         string   `json:"id"`
	LeaseID    string   `json:"lease_id"`
	Generation int64    `json:"generation"`
	SandboxID  string   `json:"sandbox_id"`
	Command    []string `json:"command"`
	// EnvNames are the variables that it was given; their values are not kept.
	EnvNames []string `json:"env_names,omitempty"`
	Cwd      string   `json:"cwd"`
	User     string   `json:"user,omitempty"`
	As       ExecAs   `json:"as,omitempty" enum:"verifier" doc:"verifier: it ran as the sandbox's verifier."`
	Timeout  Duration `json:"timeout"`
	Detached bool     `json:"detached,omitempty"`
	// SessionID is the session that it is run in, "" for none.
	SessionID string    `json:"session_id,omitempty"`
	State     ExecState `json:"state" enum:"running,finished,failed,cancelled"`
	// StartedAt is when it was accepted.
	StartedAt  time.Time `json:"started_at"`
	FinishedAt time.Time `json:"finished_at,omitzero"`
	// ExitCode, TimedOut and OOMKilled are an ExecResult's, of a command that has finished.
	ExitCode  int  `json:"exit_code"`
	TimedOut  bool `json:"timed_out,omitempty"`
	OOMKilled bool `json:"oom_killed,omitempty"`
	// Error says why it failed or was cancelled, or why not all of its output is kept.
	Error string `json:"error,omitempty"`
	// StdoutBytes and StderrBytes are what it wrote, once it has ended. Truncated: not all of it is kept.
	StdoutBytes int64 `json:"stdout_bytes"`
	StderrBytes int64 `json:"stderr_bytes"`
	Truncated   bool  `json:"truncated,omitempty"`
	// DroppedAt is since when its output is no longer kept, because newer output took its room.
	DroppedAt time.Time `json:"dropped_at,omitzero" doc:"Since when its output is no longer kept: newer output took its room."`
	// LastEventSequence is the last event of the sandbox that this takes into account.
	LastEventSequence int64 `json:"last_event_sequence"`
}

// ExecRef names a command of a lease, in whichever generation.
type ExecRef struct {
	LeaseID string
	ID      string
}

// ExecFilter selects the commands of a lease.
type ExecFilter struct {
	LeaseID string
	// State selects those in one state; empty selects all.
	State ExecState
	// Before is the id of the last command of the page before.
	Before string
	// Limit is the page size, 1 to 1000; zero means 1000.
	Limit int
}

// ExecStream is one of the streams that a command writes.
type ExecStream string

// The streams.
const (
	Stdout ExecStream = "stdout"
	Stderr ExecStream = "stderr"
)

// OutputRequest asks for what a command wrote.
type OutputRequest struct {
	ExecRef
	Stream ExecStream
	// Offset is the first byte that is wanted, from 0.
	Offset int64
	// Follow goes on to the command's end; without it there is what is there.
	Follow bool
}
