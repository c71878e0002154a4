package sandbox

import (
	"errors"
	"fmt"
	"io"
	"slices"
	"time"
)

// Limits of RunRequest.Margin.
const (
	DefaultRunMargin = Duration(2 * time.Minute)
	minRunMargin     = Duration(5 * time.Second)
	maxRunMargin     = Duration(time.Hour)
)

// RunRequest asks to run one command in a new sandbox that is destroyed afterwards.
type RunRequest struct {
	EnvironmentID string
	// AgentDID is the agent of the run. Empty means a new agent for this run alone.
	AgentDID string
	// Owner is the caller. The run's lease belongs to "<owner>/run/<random>".
	Owner string
	// Tenant is the caller, nil for the operator.
	Tenant *Tenant
	// ExecRequest is the command. Its Timeout limits only the command.
	ExecRequest
	// Margin is the time allowed for creating the sandbox and transferring its files. The lease ends after
	// timeout plus margin, or one margin after the caller's last sign of life. 5 s to 1 h.
	Margin Duration
	// Files is a tar stream that is unpacked in /workspace before the command, nil for none.
	Files io.Reader
	// Collect are the paths to return in Collected after the command, as one tar stream, even if the command
	// failed. Names in the stream are the absolute paths without the leading slash.
	Collect   []string
	Collected io.Writer
}

// Normalize fills in defaults and checks the request. Errors: Invalid.
func (r RunRequest) Normalize() (RunRequest, error) {
	orDefault(&r.Margin, DefaultRunMargin)
	f := checkEnvironmentID(nil, "environment_id", r.EnvironmentID)
	if r.AgentDID != "" {
		f = checkAgentDID(f, "agent_did", r.AgentDID)
	}
	if r.Margin < minRunMargin || r.Margin > maxRunMargin {
		f = append(f, Field{"margin", "must be between 5s and 1h"})
	}
	if r.Session != "" {
		f = append(f, Field{"session", "must not be set: a run has a new sandbox, which has no sessions"})
	}
	if r.As != "" {
		f = append(f, Field{"as", "must not be set: a run has a new sandbox, in which nothing else runs"})
	}
	r.Collect = slices.Clone(r.Collect)
	for i, p := range r.Collect {
		clean, err := CleanPath(p)
		if err != nil {
			f = append(f, Field{fmt.Sprintf("collect[%d]", i), err.Error()})
		}
		r.Collect[i] = clean
	}
	if len(r.Collect) > 0 && r.Collected == nil {
		f = append(f, Field{"collect", "requires Collected, which receives the paths"})
	}
	var err error
	r.ExecRequest, err = r.ExecRequest.Normalize()
	if e, ok := errors.AsType[*Error](err); ok {
		f = append(f, e.Fields...)
	}
	return r, InvalidFields("run", f)
}

// RunResult is the result of a run.
type RunResult struct {
	ExecResult
	// Lease is the run's lease at its end, with its cost. It is destroyed, or expired if its backend could not
	// be reached; the service then retries until the sandbox is gone.
	Lease Lease
	// Missing are the paths in Collect that did not exist.
	Missing []string
}
