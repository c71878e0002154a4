// Package wire defines the types of the HTTP API that are not domain types: problems, pages, and commands with their
// streams. reconciler/api writes them, and reconciler/client reads them.
package wire

import (
	"encoding/base64"
	"errors"
	"fmt"
	"io/fs"
	"strconv"
	"time"
	"unicode/utf8"

	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// Content types.
const (
	JSON        = "application/json"
	ProblemJSON = "application/problem+json"
	NDJSON      = "application/x-ndjson"
	EventStream = "text/event-stream"
	Tar         = "application/x-tar"
	OctetStream = "application/octet-stream"
)

// HeaderRequestID holds the id of the request in the server's log.
const HeaderRequestID = "X-Request-Id"

// HeaderLogOffset holds the offset of the first byte of a log response.
const HeaderLogOffset = "Log-Offset"

// HeaderSession says what an agent works for. The agent sends it with its model calls.
const HeaderSession = sandbox.HeaderSession

// Problem is an error response (RFC 9457).
type Problem struct {
	Type   string          `json:"type" format:"uri" doc:"urn:sandbox-lease:problem: followed by the code."`
	Title  string          `json:"title" doc:"What the code means."`
	Status int             `json:"status" doc:"The HTTP status."`
	Detail string          `json:"detail" doc:"What was tried, on which object, why it failed, and what to do next."`
	Code   sandbox.Code    `json:"code" doc:"Kind of failure, for programs."`
	Reason sandbox.Reason  `json:"reason,omitempty" doc:"Refines the code, for programs."`
	Fields []sandbox.Field `json:"fields,omitempty" doc:"The problems of the request by field."`
	// RequestID is the value of the header X-Request-Id.
	RequestID string `json:"request_id,omitempty" doc:"The id of the request in the server's log."`
}

// Err converts the problem to an error.
func (p Problem) Err() *sandbox.Error {
	e := &sandbox.Error{Code: p.Code, Reason: p.Reason, Message: p.Detail, Fields: p.Fields}
	if p.Code == sandbox.Internal && p.RequestID != "" {
		e.Message += " (request " + p.RequestID + ")" // the only way to find it in the log
	}
	return e
}

// EnvironmentPage is a list of environments.
type EnvironmentPage struct {
	Environments []sandbox.Environment `json:"environments" nullable:"false"`
}

// AcquiredBatch holds the results of a batch.
type AcquiredBatch struct {
	Results []AcquiredItem `json:"results" nullable:"false" doc:"One result per item, in the order of the items."`
}

// AcquiredItem is the result of one item: a lease or an error.
type AcquiredItem struct {
	Lease *sandbox.Lease `json:"lease,omitempty" doc:"Absent if the item failed."`
	IsNew bool           `json:"is_new" doc:"Whether this batch created the lease."`
	Error *Problem       `json:"error,omitempty" doc:"Why the item failed."`
}

// LeasePage is one page of leases.
type LeasePage struct {
	Leases []sandbox.Lease `json:"leases" nullable:"false"`
	// NextAfter is the after of the next page; absent on the last.
	NextAfter string `json:"next_after,omitempty"`
}

// EventPage is one page of events.
type EventPage struct {
	Events []sandbox.Event `json:"events" nullable:"false"`
	// NextAfterID is the after_id of the next page; absent on the last.
	NextAfterID int64 `json:"next_after_id,omitempty"`
}

// DeliveryPage is a page of deliveries.
type DeliveryPage struct {
	Deliveries []sandbox.StoredDelivery `json:"deliveries" nullable:"false"`
	// NextBefore is set when there may be more.
	NextBefore string `json:"next_before,omitempty"`
}

// DriftPage is a list of drift findings.
type DriftPage struct {
	Findings []sandbox.DriftFinding `json:"findings" nullable:"false"`
}

// LLMCallPage is a page of model calls.
type LLMCallPage struct {
	Calls []sandbox.LLMCall `json:"calls" nullable:"false"`
	// NextBefore is set when there may be more.
	NextBefore string `json:"next_before,omitempty"`
}

// StatePage is a page of snapshots.
type StatePage struct {
	States []sandbox.Snapshot `json:"states" nullable:"false"`
}

// ExecPage is one page of commands.
type ExecPage struct {
	Execs []sandbox.Exec `json:"execs" nullable:"false"`
	// NextBefore is the before of the next page; absent on the last.
	NextBefore string `json:"next_before,omitempty"`
}

// ProcessPage is a list of processes.
type ProcessPage struct {
	Processes []sandbox.Process `json:"processes" nullable:"false"`
}

// AgentPage is one page of agents.
type AgentPage struct {
	Agents []sandbox.Agent `json:"agents" nullable:"false"`
	// NextAfter is the after of the next page; absent on the last.
	NextAfter string `json:"next_after,omitempty"`
}

// ProcessWait is the condition of a wait: one of log, port and exit.
type ProcessWait struct {
	Log     string           `json:"log,omitempty" doc:"Wait for a log line that matches this regular expression (RE2). Earlier lines count."`
	Port    int              `json:"port,omitempty" doc:"Wait until this TCP port of the sandbox's 127.0.0.1 accepts connections, from any process."`
	Exit    bool             `json:"exit,omitempty" doc:"Wait until the process has exited and is not restarted."`
	Timeout sandbox.Duration `json:"timeout,omitempty" doc:"Default 1m, at most 1h."`
}

// RenewRequest is the body of a renewal.
type RenewRequest struct {
	Settings *sandbox.LeaseSettings `json:"settings,omitempty" doc:"Replaces the lease's own settings. Absent keeps them."`
}

// FileInfo describes a file, directory or symlink in a sandbox. Symlinks are not followed.
type FileInfo struct {
	Name           string           `json:"name" doc:"The last element of the path."`
	NameEncoding   string           `json:"name_encoding,omitempty" enum:"base64"`
	Type           sandbox.FileType `json:"type" enum:"file,directory,symlink,other"`
	Size           int64            `json:"size,omitempty" doc:"In bytes, for regular files only."`
	Mode           string           `json:"mode" doc:"Permissions, octal." example:"0644"`
	ModifiedAt     time.Time        `json:"modified_at"`
	Target         string           `json:"target,omitempty" doc:"Target of a symlink."`
	TargetEncoding string           `json:"target_encoding,omitempty" enum:"base64"`
}

// FilePage is one page of a directory.
type FilePage struct {
	Files []FileInfo `json:"files" nullable:"false"`
}

// FileInfoOf converts a description to its wire form.
func FileInfoOf(f sandbox.FileInfo) FileInfo {
	w := FileInfo{Type: f.Type, Size: f.Size, Mode: FileMode(f.Mode), ModifiedAt: f.ModifiedAt}
	w.Name, w.NameEncoding = Encode([]byte(f.Name))
	w.Target, w.TargetEncoding = Encode([]byte(f.Target))
	return w
}

// FileInfo converts the wire form back.
func (w FileInfo) FileInfo() (sandbox.FileInfo, error) {
	name, err1 := Decode(w.Name, w.NameEncoding)
	target, err2 := Decode(w.Target, w.TargetEncoding)
	mode, err3 := ParseFileMode(w.Mode)
	return sandbox.FileInfo{
		Name: string(name), Type: w.Type, Size: w.Size, Mode: mode, ModifiedAt: w.ModifiedAt, Target: string(target),
	}, errors.Join(err1, err2, err3)
}

// FileMode formats permissions in octal.
func FileMode(m fs.FileMode) string { return fmt.Sprintf("%04o", m.Perm()) }

// ParseFileMode is the inverse of FileMode. "" means no mode.
func ParseFileMode(s string) (fs.FileMode, error) {
	if s == "" {
		return 0, nil
	}
	n, err := strconv.ParseUint(s, 8, 9)
	if err != nil {
		return 0, fmt.Errorf("mode %q must be octal, from 0001 to 0777", s)
	}
	return fs.FileMode(n), nil
}

// Base64 is the encoding of a text that is not valid UTF-8. Other texts are sent unchanged.
const Base64 = "base64"

// ExecRequest is a request to run a command. With content type NDJSON, it is the first line of the body, and ExecInput
// lines follow as the command's standard input.
type ExecRequest struct {
	ID            string              `json:"id,omitempty" doc:"Id for idempotent retries: a repeat of the request returns the same command. Input and values of variables are not compared. Never reusable. Default: generated."`
	Command       []string            `json:"command,omitempty" nullable:"false" doc:"Program and arguments, without a shell."`
	Shell         string              `json:"shell,omitempty" doc:"A line for the image's /bin/sh instead of command, only in sessions. The session keeps the variables that it exports and its final directory."`
	Source        sandbox.EventSource `json:"source,omitempty" enum:"user,agent,system" doc:"Author of a session's command. Default agent."`
	Env           map[string]string   `json:"env,omitempty"`
	Cwd           string              `json:"cwd,omitempty" doc:"In /workspace or /data. Default /workspace."`
	User          string              `json:"user,omitempty" doc:"\"uid\" or \"uid:gid\" in numbers; root needs the environment's confinement.allow_root. Default: the sandbox's user."`
	As            sandbox.ExecAs      `json:"as,omitempty" enum:"verifier" doc:"verifier: run as a second user of the sandbox, while all other processes of the sandbox are frozen. An error if one of them ran anyway. For test verdicts. Other commands wait, and get 409 verifier_runs at their timeout."`
	Timeout       sandbox.Duration    `json:"timeout,omitempty" doc:"At most 24h; the exit code is then 124. Default: the environment's command_timeout."`
	OutputLimit   int                 `json:"output_limit,omitempty" doc:"Bytes to keep of each stream of collected output. Default 1 MiB."`
	Stdin         string              `json:"stdin,omitempty"`
	StdinEncoding string              `json:"stdin_encoding,omitempty" enum:"base64"`
	Detach        bool                `json:"detach,omitempty" doc:"Respond with 202 and the started command. It keeps running without its caller, and takes no stdin."`
}

// ExecInput is a piece of a command's standard input.
type ExecInput struct {
	Data     string `json:"data"`
	Encoding string `json:"encoding,omitempty" enum:"base64"`
}

// ExecResult is the result of a command. It does not repeat streamed output.
type ExecResult struct {
	ExecID         string           `json:"exec_id,omitempty" doc:"The id of the command."`
	ExitCode       int              `json:"exit_code"`
	Stdout         string           `json:"stdout,omitempty"`
	StdoutEncoding string           `json:"stdout_encoding,omitempty" enum:"base64"`
	Stderr         string           `json:"stderr,omitempty"`
	StderrEncoding string           `json:"stderr_encoding,omitempty" enum:"base64"`
	Duration       sandbox.Duration `json:"duration"`
	TimedOut       bool             `json:"timed_out,omitempty"`
	OOMKilled      bool             `json:"oom_killed,omitempty"`
	Truncated      bool             `json:"truncated,omitempty"`
	StdoutBytes    int64            `json:"stdout_bytes" doc:"Bytes written."`
	StderrBytes    int64            `json:"stderr_bytes"`
}

// ExecOutput is one line of a streamed command: a piece of output, or, as the last line, the
// result or the error. Empty lines keep the connection alive.
type ExecOutput struct {
	Stream   string      `json:"stream,omitempty" enum:"stdout,stderr"`
	Data     string      `json:"data,omitempty"`
	Encoding string      `json:"encoding,omitempty" enum:"base64"`
	Result   *ExecResult `json:"result,omitempty"`
	Error    *Problem    `json:"error,omitempty"`
}

// ResultOf converts the result of a command to its wire form.
func ResultOf(r sandbox.ExecResult) ExecResult {
	w := ExecResult{
		ExecID:      r.ExecID,
		ExitCode:    r.ExitCode,
		Duration:    r.Duration,
		TimedOut:    r.TimedOut,
		OOMKilled:   r.OOMKilled,
		Truncated:   r.Truncated,
		StdoutBytes: r.StdoutBytes,
		StderrBytes: r.StderrBytes,
	}
	w.Stdout, w.StdoutEncoding = Encode(r.Stdout)
	w.Stderr, w.StderrEncoding = Encode(r.Stderr)
	return w
}

// Result converts the wire form back.
func (w ExecResult) Result() (sandbox.ExecResult, error) {
	stdout, err1 := Decode(w.Stdout, w.StdoutEncoding)
	stderr, err2 := Decode(w.Stderr, w.StderrEncoding)
	return sandbox.ExecResult{
		ExecID:      w.ExecID,
		ExitCode:    w.ExitCode,
		Stdout:      stdout,
		Stderr:      stderr,
		Duration:    w.Duration,
		TimedOut:    w.TimedOut,
		OOMKilled:   w.OOMKilled,
		Truncated:   w.Truncated,
		StdoutBytes: w.StdoutBytes,
		StderrBytes: w.StderrBytes,
	}, errors.Join(err1, err2)
}

// Encode returns bytes as text if they are valid UTF-8, otherwise in base64.
func Encode(b []byte) (data, encoding string) {
	if utf8.Valid(b) {
		return string(b), ""
	}
	return base64.StdEncoding.EncodeToString(b), Base64
}

// Decode is the inverse of Encode.
func Decode(data, encoding string) ([]byte, error) {
	switch encoding {
	case "":
		return []byte(data), nil
	case Base64:
		return base64.StdEncoding.DecodeString(data)
	default:
		return nil, fmt.Errorf("unknown encoding %q: want %q", encoding, Base64)
	}
}

// RunRequest is a request for a one-shot run. In a multipart/form-data body, it is the part "run". The parts "files", a
// tar stream, and "stdin" may follow in this order.
type RunRequest struct {
	EnvironmentID string           `json:"environment_id"`
	AgentDID      string           `json:"agent_did,omitempty" doc:"Default: a new agent for this run."`
	Margin        sandbox.Duration `json:"margin,omitempty" doc:"Time allowed for creating the sandbox and copying files, 5s to 1h. Default 2m0s."`
	Collect       []string         `json:"collect,omitempty" doc:"Paths and patterns, such as results/**/*.json, to return as a tar stream after the command. A path with *, ?, [ or { is a pattern."`
	RunSandbox
	ExecRequest
}

// RunSandbox has the settings of a run's sandbox that replace its environment's.
type RunSandbox struct {
	Image     string              `json:"image,omitempty" doc:"Image of this run. Default: the environment's. Another one needs the scope admin. Not on Cloudflare."`
	Resources sandbox.Resources   `json:"resources,omitzero" doc:"Size of this run. Default: the environment's; 0 keeps a field. More than the environment has needs the scope admin. Not on Cloudflare."`
	Network   sandbox.NetworkMode `json:"network,omitempty" enum:"none,restricted,full" doc:"none, or the environment's own. LLM routes are there with none, too. Not on Cloudflare."`
}

// RunResult is the result of a run.
type RunResult struct {
	ExecResult
	Lease   sandbox.Lease `json:"lease" doc:"The lease of the run at its end, with its cost."`
	Missing []string      `json:"missing,omitempty" doc:"Paths to collect that do not exist or cannot be read completely."`
	// Files are the collected files. Streamed runs send them in lines.
	Files []byte `json:"files,omitempty" doc:"The collected files, a tar stream in base64."`
}

// RunOutput is one line of a streamed run; see ExecOutput.
type RunOutput struct {
	Stream   string     `json:"stream,omitempty" enum:"stdout,stderr,files"`
	Data     string     `json:"data,omitempty"`
	Encoding string     `json:"encoding,omitempty" enum:"base64"`
	Result   *RunResult `json:"result,omitempty"`
	Error    *Problem   `json:"error,omitempty"`
}

// The names of the parts of a run's body.
const (
	PartRun   = "run"
	PartFiles = "files"
	PartStdin = "stdin"
)

// RunResultOf converts the result of a run to its wire form.
func RunResultOf(r sandbox.RunResult) RunResult {
	return RunResult{ExecResult: ResultOf(r.ExecResult), Lease: r.Lease, Missing: r.Missing}
}
