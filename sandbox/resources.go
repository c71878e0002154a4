package sandbox

import (
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
)

// Resources are the limits of one sandbox.
type Resources struct {
	MemoryMB  int64 `json:"memory_mb" doc:"Memory limit in MiB." minimum:"0"`
	CPUMillis int64 `json:"cpu_millis" doc:"CPU limit in thousandths of a core." minimum:"0"`
	PIDs      int64 `json:"pids_limit" doc:"Largest number of processes and threads." minimum:"0"`
	DiskMB    int64 `json:"disk_mb" doc:"Billed disk size in MB, and the limit of /workspace and /data together." minimum:"0"`
}

// DefaultResources are the default limits of a sandbox: enough for a game of one agent. Cloudflare has another default.
var DefaultResources = Resources{MemoryMB: 512, CPUMillis: 500, PIDs: 256, DiskMB: 10240}

// FormerDefaultResources were the default limits on Docker in development builds before November 2026. Environments
// keep them, see EnvironmentSpec.Keeping, and ceilings of tokens allow them.
var FormerDefaultResources = Resources{MemoryMB: 4096, CPUMillis: 2000, PIDs: 256, DiskMB: 10240}

// InstanceType is a named size. The names and figures are those of Cloudflare Containers
// (developers.cloudflare.com/containers/platform/limits, read 2026-08).
type InstanceType struct {
	Name string
	Resources
}

// defaultResources are the defaults of a backend. Cloudflare has only named sizes, so its default is one of
// them.
func defaultResources(b Backend) Resources {
	if b == Cloudflare {
		basic, _ := ResourcesOf("basic") // defined below
		return basic
	}
	return DefaultResources
}

// InstanceTypes lists the named sizes from small to large.
var InstanceTypes = []InstanceType{
	{"lite", Resources{MemoryMB: 256, CPUMillis: 62, PIDs: 256, DiskMB: 2000}},
	{"basic", Resources{MemoryMB: 1024, CPUMillis: 250, PIDs: 256, DiskMB: 4000}},
	{"standard-1", Resources{MemoryMB: 4096, CPUMillis: 500, PIDs: 256, DiskMB: 8000}},
	{"standard-2", Resources{MemoryMB: 6144, CPUMillis: 1000, PIDs: 256, DiskMB: 12000}},
	{"standard-3", Resources{MemoryMB: 8192, CPUMillis: 2000, PIDs: 256, DiskMB: 16000}},
	{"standard-4", Resources{MemoryMB: 12288, CPUMillis: 4000, PIDs: 256, DiskMB: 20000}},
}

// ResourcesOf returns the limits of a named size.
func ResourcesOf(instanceType string) (Resources, bool) {
	for _, t := range InstanceTypes {
		if t.Name == instanceType {
			return t.Resources, true
		}
	}
	return Resources{}, false
}

// Ranges of a sandbox's limits. The lower bounds of memory and CPU were measured on Docker: TestTheSmallestSandbox.
const (
	MinMemoryMB, MaxMemoryMB   = 64, 32768
	MinCPUMillis, MaxCPUMillis = 50, 16000
	MinPIDs, MaxPIDs           = 32, 4096
	MinDiskMB, MaxDiskMB       = 1024, 102400
)

// fields returns the problems of a size. Its defaults must be filled in.
func (r Resources) fields() []Field {
	var f []Field
	bad := func(name, problem string, args ...any) {
		f = append(f, Field{"resources." + name, fmt.Sprintf(problem, args...)})
	}
	checkRange(bad, "memory_mb", r.MemoryMB, MinMemoryMB, MaxMemoryMB)
	checkRange(bad, "cpu_millis", r.CPUMillis, MinCPUMillis, MaxCPUMillis)
	checkRange(bad, "pids_limit", r.PIDs, MinPIDs, MaxPIDs)
	checkRange(bad, "disk_mb", r.DiskMB, MinDiskMB, MaxDiskMB)
	return f
}

func checkRange(bad func(string, string, ...any), name string, v, low, high int64) {
	if v < low || v > high {
		bad(name, "must be between %d and %d, not %d", low, high, v)
	}
}

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

// Confinement holds the isolation settings that an environment may change. The rest is fixed: no capabilities, no new
// privileges, a read-only root, no devices.
type Confinement struct {
	User           string    `json:"user,omitempty" doc:"Numeric user and group that the code of every sandbox runs as, as uid:gid. Sandboxes with the same user share the kernel's limits for it. Default: a separate user for each sandbox."`
	AllowRoot      bool      `json:"allow_root,omitempty" doc:"Permit user or group 0 in user. Even root has no capabilities here. Default false."`
	Runtime        string    `json:"runtime,omitempty" doc:"Container runtime, such as runsc. The engine must have it. Default: the engine's default runtime."`
	SeccompProfile string    `json:"seccomp_profile,omitempty" doc:"Seccomp profile as JSON text. It replaces the built-in profile and must deny by default."`
	TmpMB          int64     `json:"tmp_mb,omitempty" doc:"Size of /tmp in MiB, 1 to 32768, at most half of the memory. Its content counts as memory. Default 512, or half of the memory if that is less."`
	RunMB          int64     `json:"run_mb,omitempty" doc:"Size of /run in MiB, 1 to 1024, at most a sixteenth of the memory. Its content counts as memory. Default 16, or a sixteenth of the memory if that is less."`
	OpenFiles      int64     `json:"open_files,omitempty" doc:"Largest number of open files of one process, 64 to 1048576. Default 16384."`
	DiskLimit      DiskLimit `json:"disk_limit,omitempty" enum:"billed,enforced" doc:"billed (default): disk_mb is billed; if /workspace and /data together exceed it, the sandbox's programs are killed. enforced: in addition, a quota limits each of the two to disk_mb; an engine without quotas refuses the environment."`
}

// Defaults of a confinement.
const (
	defaultTmpMB     = 512
	defaultRunMB     = 16
	defaultOpenFiles = 16384
)

// The largest sizes of directories in memory.
const maxTmpMB, maxRunMB = 32768, 1024

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
	checkRange(bad, "tmp_mb", c.TmpMB, 1, maxTmpMB)
	checkRange(bad, "run_mb", c.RunMB, 1, maxRunMB)
	checkRange(bad, "open_files", c.OpenFiles, 64, 1<<20)
	if c.DiskLimit != DiskBilled && c.DiskLimit != DiskEnforced {
		bad("disk_limit", "must be billed or enforced, not %q", c.DiskLimit)
	}
	return f
}

// MaxTmpMB is the largest /tmp of a sandbox of this size.
func (r Resources) MaxTmpMB() int64 { return r.MemoryMB / 2 }

// MaxRunMB is the largest /run of a sandbox of this size.
func (r Resources) MaxRunMB() int64 { return r.MemoryMB / 16 }

// AboveMemory returns the problems of sizes above their part of a sandbox's memory. The defaults have none: the backend
// makes them smaller, and an environment that was read with them is valid again.
func (c Confinement) AboveMemory(r Resources) (f []Field) {
	most := func(name, part string, v, def, most, whole int64) {
		if v > most && v != def && v <= whole && r.MemoryMB >= MinMemoryMB { // else another problem says so
			f = append(f, Field{"confinement." + name, fmt.Sprintf("must be at most %d, %s of the %d MiB of memory, not %d",
				most, part, r.MemoryMB, v)})
		}
	}
	most("tmp_mb", "half", c.TmpMB, defaultTmpMB, r.MaxTmpMB(), maxTmpMB)
	most("run_mb", "a sixteenth", c.RunMB, defaultRunMB, r.MaxRunMB(), maxRunMB)
	return f
}

// profileProblem returns the problem of a seccomp profile, "" if it has none.
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
