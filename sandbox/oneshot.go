package sandbox

import (
	"errors"
	"fmt"
	"io"
	"slices"
	"time"
)

// Bounds of RunRequest.Margin.
const (
	DefaultRunMargin = Duration(2 * time.Minute)
	minRunMargin     = Duration(5 * time.Second)
	maxRunMargin     = Duration(time.Hour)
)

// RunRequest asks for one command in a sandbox that is made for it and destroyed after it.
type RunRequest struct {
	EnvironmentID string
	// AgentDID is whose run it is. Empty means an agent of its own, which no other run has.
	AgentDID string
	// Owner is who asks; the run's lease belongs to "<owner>/run/<random>".
	Owner string
	// Tenant is who asks, nil for the operator.
	Tenant *Tenant
	// ExecRequest is the command. Its Timeout bounds the command alone.
	ExecRequest
	// Margin is what making the sandbox and moving its files may take: the lease ends for good at the
	// timeout and the margin, and a margin after the caller's last sign of life. 5 s to 1 h.
	Margin Duration
	// Files is a tar stream that is unpacked in /workspace before the command, nil for none.
	Files io.Reader
	// Collect are the paths that Collected gets after the command, as one tar stream, also of a command
	// that failed. Its names are the absolute paths without the slash that they begin with.
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
		f = append(f, Field{"session", "a run has a sandbox of its own, which has no sessions"})
	}
	if r.As != "" {
		f = append(f, Field{"as", "must be left out: a run has a sandbox of its own, in which nothing else runs"})
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
		f = append(f, Field{"collect", "nobody takes what is collected"})
	}
	var err error
	r.ExecRequest, err = r.ExecRequest.Normalize()
	if e, ok := errors.AsType[*Error](err); ok {
		f = append(f, e.Fields...)
	}
	return r, InvalidFields("run", f)
}

// RunResult is how a run ended.
type RunResult struct {
	ExecResult
	// Lease is the run's lease at its end, with what it cost: destroyed, or expired where its backend
	// could not be reached, which is then tried until its sandbox is gone.
	Lease Lease
	// Missing are the paths to collect that were not there.
	Missing []string
}
