package sandbox

import (
	"errors"
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/bmatcuk/doublestar/v4"
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
	// Choice replaces settings of the environment for the sandbox. Exceeding them needs MayExceed.
	Choice SandboxChoice
	// MayExceed: the caller may change the environment, so Choice may exceed it. The front end sets it.
	MayExceed bool
	// Files is a tar stream that is unpacked in /workspace before the command, nil for none.
	Files io.Reader
	// Collect are the paths to return in Collected after the command, as one tar stream, even if the command failed. Names
	// in the stream are the absolute paths without the leading slash. A path with *, ?, [ or { is a pattern (** matches
	// any number of directories); a backslash escapes such a character. A matching directory is returned with its content.
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
		switch {
		case err != nil:
			f = append(f, Field{fmt.Sprintf("collect[%d]", i), err.Error()})
		case !doublestar.ValidatePattern(clean):
			f = append(f, Field{fmt.Sprintf("collect[%d]", i), fmt.Sprintf("%q is not a valid pattern", p)})
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

// SandboxChoice replaces settings of its environment for one sandbox. Zero fields keep the environment's.
type SandboxChoice struct {
	Image     string
	Resources Resources
	// Network is none or the environment's own.
	Network NetworkMode
}

// Apply returns the environment's settings with the choice. Errors: Invalid if a field is wrong, or if the backend sets
// it for the whole environment; Forbidden with ReasonScopeMissing if it exceeds the environment's and mayExceed is
// false, or with ReasonCeilingExceeded if it exceeds the tenant's ceiling.
func (c SandboxChoice) Apply(spec EnvironmentSpec, mayExceed bool, t *Tenant) (EnvironmentSpec, error) {
	if c == (SandboxChoice{}) {
		return spec, nil
	}
	if spec.Backend == Cloudflare {
		return spec, InvalidFields("run", c.set("must not be set: on Cloudflare all sandboxes of an environment have its %s"))
	}
	if c.Network != "" && c.Network != NetworkNone && c.Network != spec.Network {
		return spec, InvalidFields("run",
			[]Field{{"network", fmt.Sprintf("must be none or, as in the environment, %s, not %q", spec.Network, c.Network)}})
	}
	if more := c.more(spec); len(more) > 0 && !mayExceed {
		return spec, &Error{Code: Forbidden, Reason: ReasonScopeMissing, Fields: more,
			Message: "the run asks for more than the environment has: it needs a token with the scope admin, which may " +
				"change the environment"}
	}
	orDefault(&c.Image, spec.Image)
	orDefault(&c.Resources.MemoryMB, spec.Resources.MemoryMB)
	orDefault(&c.Resources.CPUMillis, spec.Resources.CPUMillis)
	orDefault(&c.Resources.PIDs, spec.Resources.PIDs)
	orDefault(&c.Resources.DiskMB, spec.Resources.DiskMB)
	spec.Image, spec.Resources = c.Image, c.Resources
	if c.Network == NetworkNone {
		spec.Network, spec.Egress = NetworkNone, nil
	}
	if e, ok := errors.AsType[*Error](spec.Validate()); ok {
		return spec, InvalidFields("run", e.Fields)
	}
	return spec, t.Check(spec)
}

// set returns the problem for each field that is set.
func (c SandboxChoice) set(problem string) (f []Field) {
	for _, field := range []struct {
		name  string
		isSet bool
	}{{"image", c.Image != ""}, {"network", c.Network != ""}, {"resources", c.Resources != Resources{}}} {
		if field.isSet {
			f = append(f, Field{field.name, fmt.Sprintf(problem, field.name)})
		}
	}
	return f
}

// more returns the fields in which the choice exceeds the environment.
func (c SandboxChoice) more(spec EnvironmentSpec) (f []Field) {
	if c.Image != "" && c.Image != spec.Image {
		f = append(f, Field{"image", fmt.Sprintf("must be %s, the environment's, not %s", spec.Image, c.Image)})
	}
	most := func(name string, asked, has int64) {
		if asked > has {
			f = append(f, Field{"resources." + name, fmt.Sprintf("must be at most %d, the environment's, not %d", has, asked)})
		}
	}
	most("memory_mb", c.Resources.MemoryMB, spec.Resources.MemoryMB)
	most("cpu_millis", c.Resources.CPUMillis, spec.Resources.CPUMillis)
	most("pids_limit", c.Resources.PIDs, spec.Resources.PIDs)
	most("disk_mb", c.Resources.DiskMB, spec.Resources.DiskMB)
	return f
}

// RunResult is the result of a run.
type RunResult struct {
	ExecResult
	// Lease is the run's lease at its end, with its cost. It is destroyed, or expired if its backend could not
	// be reached; the service then retries until the sandbox is gone.
	Lease Lease
	// Missing are the paths in Collect that did not exist or could not be read. If reading one broke off, such as at a
	// file that the sandbox's user may not read, the stream has what came before it.
	Missing []string
}
