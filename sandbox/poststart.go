package sandbox

import (
	"fmt"
	"maps"
	"slices"
	"time"
)

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
