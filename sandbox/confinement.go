package sandbox

import (
	"encoding/json"
	"fmt"
	"regexp"
	"strconv"
	"strings"
)

// DiskLimit says what disk_mb is.
type DiskLimit string

// The disk limits.
const (
	// DiskBilled: disk_mb is the size that is billed. It bounds each single file, and /workspace and /data together:
	// a sandbox that keeps more has its programs ended.
	DiskBilled DiskLimit = "billed"
	// DiskEnforced: besides, a quota bounds /workspace and /data to disk_mb each. A backend that cannot hold that
	// refuses the environment.
	DiskEnforced DiskLimit = "enforced"
)

// Confinement is what an environment decides about how its sandboxes are shut in. What it does not
// name is not to be decided: no capabilities, no new privileges, a read-only root, no devices.
type Confinement struct {
	User           string    `json:"user,omitempty" doc:"Numeric user and group that the code of every sandbox runs as, as uid:gid. Sandboxes with the same user share the kernel's limits for it. Default: a user of its own for each sandbox."`
	AllowRoot      bool      `json:"allow_root,omitempty" doc:"Permit user to name user or group 0. Without capabilities even root may do little; it is refused unless this says so."`
	Runtime        string    `json:"runtime,omitempty" doc:"Container runtime, such as runsc, that the engine must have. Default: the engine's own."`
	SeccompProfile string    `json:"seccomp_profile,omitempty" doc:"Seccomp profile, as its JSON text, in place of this program's own. It must deny what it does not name."`
	TmpMB          int64     `json:"tmp_mb,omitempty" doc:"Size of /tmp in MiB, 1 to 32768, but at most half of the memory, against which it counts. Default 512."`
	RunMB          int64     `json:"run_mb,omitempty" doc:"Size of /run in MiB, 1 to 1024, but at most a sixteenth of the memory, against which it counts. Default 16."`
	OpenFiles      int64     `json:"open_files,omitempty" doc:"Open files of one process, 64 to 1048576. Default 16384."`
	DiskLimit      DiskLimit `json:"disk_limit,omitempty" enum:"billed,enforced" doc:"billed (default): disk_mb is billed, and programs that keep more in /workspace and /data together are ended. enforced: a quota bounds each of the two to disk_mb as well, and an engine that cannot hold that refuses the environment."`
}

// Defaults of a confinement.
const (
	defaultTmpMB     = 512
	defaultRunMB     = 16
	defaultOpenFiles = 16384
)

// maxProfile bounds a seccomp profile, in bytes; Docker's own has 15 KB.
const maxProfile = 128 << 10

// maxUserID is the last id that every user namespace has.
const maxUserID = 65535

var (
	runtimeName = regexp.MustCompile(`^[a-zA-Z0-9][a-zA-Z0-9._-]{0,127}$`)
	userPair    = regexp.MustCompile(`^([0-9]{1,5})(?::([0-9]{1,5}))?$`)
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

// ids reads the user; a group that is not named has the user's number.
func (c Confinement) ids() (uid, gid int, ok bool) {
	m := userPair.FindStringSubmatch(c.User)
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

// fields returns what is wrong with a confinement whose defaults are filled in.
func (c Confinement) fields() (f []Field) {
	bad := func(name, problem string, args ...any) {
		f = append(f, Field{"confinement." + name, fmt.Sprintf(problem, args...)})
	}
	if c.User != "" {
		if problem := userProblem(c.User, c.AllowRoot); problem != "" {
			bad("user", "%s", problem)
		}
	}
	if c.Runtime != "" && !runtimeName.MatchString(c.Runtime) {
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

// profileProblem says what is wrong with a seccomp profile, "" if nothing is.
func profileProblem(text string) string {
	if len(text) > maxProfile {
		return fmt.Sprintf("must be at most %d bytes, not %d", maxProfile, len(text))
	}
	var p struct {
		DefaultAction string `json:"defaultAction"`
	}
	if err := json.Unmarshal([]byte(text), &p); err != nil {
		return "must be the text of a profile in JSON, not a path and not unconfined: " + err.Error()
	}
	switch p.DefaultAction {
	case "SCMP_ACT_ERRNO", "SCMP_ACT_KILL", "SCMP_ACT_KILL_THREAD", "SCMP_ACT_KILL_PROCESS":
		return ""
	default:
		return "must deny what it does not name: its defaultAction must be SCMP_ACT_ERRNO or one of SCMP_ACT_KILL…, not " + strconv.Quote(strings.TrimSpace(p.DefaultAction))
	}
}
