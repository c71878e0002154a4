package sandbox

import (
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
)

// DiskLimit says how disk_mb is applied.
type DiskLimit string

// The disk limits.
const (
	// DiskBilled: disk_mb is the billed size. It limits each single file, and /workspace and /data together. If
	// a sandbox exceeds it, its programs are killed.
	DiskBilled DiskLimit = "billed"
	// DiskEnforced: in addition, a quota limits /workspace and /data to disk_mb each. A backend without quotas
	// refuses the environment.
	DiskEnforced DiskLimit = "enforced"
)

// Confinement holds what an environment may decide about the isolation of its sandboxes. The rest is fixed: no
// capabilities, no new privileges, a read-only root, no devices.
type Confinement struct {
	User           string    `json:"user,omitempty" doc:"Numeric user and group that the code of every sandbox runs as, as uid:gid. Sandboxes with the same user share the kernel's limits for it. Default: a separate user for each sandbox."`
	AllowRoot      bool      `json:"allow_root,omitempty" doc:"Permit user or group 0 in user. Even root has no capabilities here. Default false."`
	Runtime        string    `json:"runtime,omitempty" doc:"Container runtime, such as runsc. The engine must have it. Default: the engine's default runtime."`
	SeccompProfile string    `json:"seccomp_profile,omitempty" doc:"Seccomp profile as JSON text. It replaces the built-in profile and must deny by default."`
	TmpMB          int64     `json:"tmp_mb,omitempty" doc:"Size of /tmp in MiB, 1 to 32768, at most half of the memory. Its content counts as memory. Default 512."`
	RunMB          int64     `json:"run_mb,omitempty" doc:"Size of /run in MiB, 1 to 1024, at most a sixteenth of the memory. Its content counts as memory. Default 16."`
	OpenFiles      int64     `json:"open_files,omitempty" doc:"Largest number of open files of one process, 64 to 1048576. Default 16384."`
	DiskLimit      DiskLimit `json:"disk_limit,omitempty" enum:"billed,enforced" doc:"billed (default): disk_mb is billed; if /workspace and /data together exceed it, the sandbox's programs are killed. enforced: in addition, a quota limits each of the two to disk_mb; an engine without quotas refuses the environment."`
}

// Defaults of a confinement.
const (
	defaultTmpMB     = 512
	defaultRunMB     = 16
	defaultOpenFiles = 16384
)

// maxProfile limits a seccomp profile, in bytes. Docker's own profile has 15 KB.
const maxProfile = 128 << 10

// maxUserID is the largest id that exists in every user namespace.
const maxUserID = 65535

var (
	runtimeName = pattern(`^[a-zA-Z0-9][a-zA-Z0-9._-]{0,127}$`)
	userPair    = pattern(`^([0-9]{1,5})(?::([0-9]{1,5}))?$`)
)

// WithDefaults returns the confinement with every default filled in.
func (c Confinement) WithDefaults() Confinement {
	orDefault(&c.TmpMB, defaultTmpMB)
	orDefault(&c.RunMB, defaultRunMB)
	orDefault(&c.OpenFiles, defaultOpenFiles)
	orDefault(&c.DiskLimit, DiskBilled)
	if uid, gid, ok := c.ids(); ok {
		c.User = fmt.Sprintf("%d:%d", uid, gid)
	}
	return c
}

// ids parses User. The default group has the user's number.
func (c Confinement) ids() (uid, gid int, ok bool) {
	m := userPair().FindStringSubmatch(c.User)
	if m == nil {
		return 0, 0, false
	}
	uid, _ = strconv.Atoi(m[1]) // at most five digits
	gid = uid
	if m[2] != "" {
		gid, _ = strconv.Atoi(m[2])
	}
	return uid, gid, uid <= maxUserID && gid <= maxUserID
}

// fields returns the problems of a confinement. Its defaults must be filled in.
func (c Confinement) fields() (f []Field) {
	bad := func(name, problem string, args ...any) {
		f = append(f, Field{"confinement." + name, fmt.Sprintf(problem, args...)})
	}
	if c.User != "" {
		if problem := userProblem(c.User, c.AllowRoot); problem != "" {
			bad("user", "%s", problem)
		}
	}
	if c.Runtime != "" && !runtimeName().MatchString(c.Runtime) {
		bad("runtime", "must be the name of a runtime of the engine, such as runsc, not %q", c.Runtime)
	}
	if c.SeccompProfile != "" {
		if problem := profileProblem(c.SeccompProfile); problem != "" {
			bad("seccomp_profile", "%s", problem)
		}
	}
	checkRange(bad, "tmp_mb", c.TmpMB, 1, 32768)
	checkRange(bad, "run_mb", c.RunMB, 1, 1024)
	checkRange(bad, "open_files", c.OpenFiles, 64, 1<<20)
	if c.DiskLimit != DiskBilled && c.DiskLimit != DiskEnforced {
		bad("disk_limit", "must be billed or enforced, not %q", c.DiskLimit)
	}
	return f
}

// profileProblem returns what is wrong with a seccomp profile, "" if nothing is.
func profileProblem(text string) string {
	if len(text) > maxProfile {
		return fmt.Sprintf("must be at most %d bytes, not %d", maxProfile, len(text))
	}
	var p struct {
		DefaultAction string `json:"defaultAction"`
	}
	if err := json.Unmarshal([]byte(text), &p); err != nil {
		return "must be the JSON text of a profile, not a path or \"unconfined\": " + err.Error()
	}
	switch p.DefaultAction {
	case "SCMP_ACT_ERRNO", "SCMP_ACT_KILL", "SCMP_ACT_KILL_THREAD", "SCMP_ACT_KILL_PROCESS":
		return ""
	default:
		return "must deny by default: its defaultAction must be SCMP_ACT_ERRNO or one of SCMP_ACT_KILL…, not " +
			strconv.Quote(strings.TrimSpace(p.DefaultAction))
	}
}
