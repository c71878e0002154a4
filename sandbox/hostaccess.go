package sandbox

import (
	"fmt"
	"path"
	"slices"
	"strings"
)

// HostAccess is what an environment's sandboxes get from the service's machine. The operator must allow each
// item: see host.Config.
type HostAccess struct {
	EnvPassthrough []string `json:"env_passthrough,omitempty" doc:"Environment variables of the service that are passed to sandboxes, read when a sandbox is created. * stands for all that the operator allows by name and that are set. env overrides them. The engine shows their values: use secrets for secrets."`
	EnvBlocked     []string `json:"env_blocked,omitempty" doc:"Environment variables that no sandbox and no command may have, in addition to those that are always blocked."`
	Mounts         []Mount  `json:"mounts,omitempty" doc:"Host directories mounted into sandboxes, read-only unless writable."`
	Copies         []Copy   `json:"copies,omitempty" doc:"Host files and directories that are copied into each sandbox when it is created."`
}

// Mount is a host directory mounted into a sandbox.
type Mount struct {
	Source   string `json:"source" doc:"Absolute path on the service's machine. The engine must run on the same machine."`
	Target   string `json:"target" doc:"Absolute path in the sandbox."`
	Writable bool   `json:"writable,omitempty"`
}

// Copy is a host file or directory that is copied into a sandbox when it is created.
type Copy struct {
	Source string `json:"source" doc:"Absolute path on the service's machine."`
	Target string `json:"target" doc:"Path of the file, or of the directory, under /workspace or /data."`
}

// AllVariables in EnvPassthrough means all variables that the operator allows by name and that are set. It omits those
// that the environment blocks.
const AllVariables = "*"

// maxHostPaths limits the mounts of an environment, and also its copies.
const maxHostPaths = 16

// Equal reports whether a and b give sandboxes the same access.
func (a HostAccess) Equal(b HostAccess) bool {
	return slices.Equal(a.EnvPassthrough, b.EnvPassthrough) && slices.Equal(a.EnvBlocked, b.EnvBlocked) &&
		slices.Equal(a.Mounts, b.Mounts) && slices.Equal(a.Copies, b.Copies)
}

// blockedEnv are the variables that no sandbox gets: the project's original list, and variables with this
// program's own credentials. An environment adds to it with env_blocked.
var blockedEnv = []string{
	"AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN",
	"DATABASE_URL", "DB_PASSWORD", "POSTGRES_PASSWORD", "MYSQL_PASSWORD", "REDIS_PASSWORD",
	"PRIVATE_KEY", "SSH_PRIVATE_KEY", "ENCRYPTION_KEY", "JWT_SECRET", "SECRET_KEY", "SIGNING_KEY",
	"STRIPE_SECRET_KEY", "SENDGRID_API_KEY", "TWILIO_AUTH_TOKEN",
	"PGPASSWORD", "SANDBOX_RECONCILER_TOKEN",
}

// EnvProblem returns why a sandbox may not have a variable, "" if it may. also names further blocked variables.
// Blocked names match in any case.
func EnvProblem(name string, also []string) string {
	same := func(blocked string) bool { return strings.EqualFold(blocked, name) }
	switch {
	case !envName().MatchString(name):
		return "is not a valid name of an environment variable"
	case slices.Contains(reservedEnv, name):
		return "is set by the system and cannot be changed"
	case slices.ContainsFunc(blockedEnv, same):
		return "is blocked in every sandbox: use secrets, which are files"
	case slices.ContainsFunc(also, same):
		return "is blocked by env_blocked"
	}
	return ""
}

// envFields returns the problems of the environment's variables.
func (s EnvironmentSpec) envFields() (f []Field) {
	for name := range s.Env {
		if problem := EnvProblem(name, s.EnvBlocked); problem != "" {
			f = append(f, Field{"env." + name, problem})
		}
	}
	for i, name := range s.EnvPassthrough {
		if name == AllVariables {
			continue
		}
		if problem := EnvProblem(name, s.EnvBlocked); problem != "" {
			f = append(f, Field{fmt.Sprintf("env_passthrough[%d]", i), fmt.Sprintf("%q %s", name, problem)})
		}
	}
	for i, name := range s.EnvBlocked {
		if !envName().MatchString(name) {
			f = append(f,
				Field{fmt.Sprintf("env_blocked[%d]", i), fmt.Sprintf("%q is not a valid name of an environment variable", name)})
		}
	}
	return f
}

// fields returns the problems of the paths that are visible without access to the host.
func (a HostAccess) fields() (f []Field) {
	bad := func(list string, i int, name, problem string) {
		f = append(f, Field{fmt.Sprintf("%s[%d].%s", list, i, name), problem})
	}
	for _, list := range []struct {
		name string
		n    int
	}{{"mounts", len(a.Mounts)}, {"copies", len(a.Copies)}} {
		if list.n > maxHostPaths {
			f = append(f, Field{list.name, fmt.Sprintf("must be at most %d, not %d", maxHostPaths, list.n)})
		}
	}
	for i, m := range a.Mounts {
		if problem := sourceProblem(m.Source); problem != "" {
			bad("mounts", i, "source", problem)
		}
		if problem := targetProblem(m.Target); problem != "" {
			bad("mounts", i, "target", problem)
		}
		for _, other := range a.Mounts[:i] {
			if Within(m.Target, other.Target) || Within(other.Target, m.Target) {
				bad("mounts", i, "target", fmt.Sprintf("%q and %q overlap", other.Target, m.Target))
			}
		}
	}
	for i, c := range a.Copies {
		if problem := sourceProblem(c.Source); problem != "" {
			bad("copies", i, "source", problem)
		}
		if clean, err := CleanPath(c.Target); err != nil || clean != c.Target {
			bad("copies", i, "target", fmt.Sprintf("must be an absolute path under /workspace or /data, not %q", c.Target))
		} else if Within(c.Target, ConfigFile) {
			bad("copies", i, "target", takesConfigFile)
		}
	}
	return f
}

func sourceProblem(p string) string {
	if !path.IsAbs(p) || path.Clean(p) != p || strings.ContainsRune(p, 0) {
		return fmt.Sprintf("must be an absolute path without \".\", \"..\" or a trailing slash, not %q", p)
	}
	return ""
}

// ownPaths are the system's own paths in a sandbox. No mount may hide them.
var ownPaths = []string{
	"/proc", "/sys", "/dev", "/run", "/tmp", "/etc", "/.sandbox", "/.sandbox-lease", "/.sandbox-egress",
	"/.sandbox-channel", "/data", ConfigFile,
}

const takesConfigFile = "must not be " + ConfigFile + ", which describes the lease to the sandbox"

func targetProblem(p string) string {
	if problem := sourceProblem(p); problem != "" {
		return problem
	}
	if p == "/" || p == "/workspace" {
		return fmt.Sprintf("must not be %s itself", p)
	}
	for _, own := range ownPaths {
		if Within(p, own) {
			return fmt.Sprintf("must not be in %s", own)
		}
	}
	return ""
}

// Within reports whether the clean path p is dir or is below it.
func Within(p, dir string) bool {
	return p == dir || strings.HasPrefix(p, strings.TrimSuffix(dir, "/")+"/")
}
