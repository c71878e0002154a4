package sandbox

import (
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
)

// Ceiling bounds what a tenant may ask for. It is the one place that says so. What it leaves out has the bound that
// is safe without an operator's decision; a size that it leaves out is bounded by the backend's default.
type Ceiling struct {
	Network        NetworkMode `json:"network,omitempty" enum:"none,restricted,full" doc:"The widest network. Default restricted."`
	Root           bool        `json:"root,omitempty" doc:"Sandboxes may run as root. Default false."`
	Seccomp        bool        `json:"seccomp,omitempty" doc:"Environments may name a seccomp profile of their own. Default false."`
	WritableMounts bool        `json:"writable_mounts,omitempty" doc:"Directories of the host may be mounted writable, where the service allows the directory. Default false."`
	Runtimes       []string    `json:"runtimes,omitempty" doc:"Container runtimes that environments may name. Default: none, which leaves the engine's own."`
	MemoryMB       int64       `json:"memory_mb,omitempty" minimum:"0" doc:"Largest memory_mb. Default: the default size of the backend."`
	CPUMillis      int64       `json:"cpu_millis,omitempty" minimum:"0" doc:"Largest cpu_millis. Default: the default size of the backend."`
	PIDs           int64       `json:"pids_limit,omitempty" minimum:"0" doc:"Largest pids_limit. Default: the default size of the backend."`
	DiskMB         int64       `json:"disk_mb,omitempty" minimum:"0" doc:"Largest disk_mb. Default: the default size of the backend."`
	TmpMB          int64       `json:"tmp_mb,omitempty" minimum:"0" doc:"Largest tmp_mb. Default 512."`
	RunMB          int64       `json:"run_mb,omitempty" minimum:"0" doc:"Largest run_mb. Default 16."`
	OpenFiles      int64       `json:"open_files,omitempty" minimum:"0" doc:"Largest open_files. Default 16384."`
	StateMB        int64       `json:"state_mb,omitempty" minimum:"0" doc:"Largest state.size_limit_mb. Default 256."`
	Environments   int64       `json:"environments,omitempty" minimum:"0" doc:"How many environments there may be that the token may touch. Default: no bound."`
	Leases         int64       `json:"leases,omitempty" minimum:"0" doc:"How many leases an environment may have at once, and how many sandboxes may wait in its pool. Default: no bound."`
}

// networks are the modes from the narrowest to the widest.
var networks = []NetworkMode{NetworkNone, NetworkRestricted, NetworkFull}

// IsZero reports whether the defaults alone bound.
func (c Ceiling) IsZero() bool { return reflect.ValueOf(c).IsZero() }

// numbers are the bounds that are counts and sizes, by their names.
func (c Ceiling) numbers() map[string]int64 {
	return map[string]int64{
		"memory_mb": c.MemoryMB, "cpu_millis": c.CPUMillis, "pids_limit": c.PIDs, "disk_mb": c.DiskMB, "tmp_mb": c.TmpMB, "run_mb": c.RunMB,
		"open_files": c.OpenFiles, "state_mb": c.StateMB, "environments": c.Environments, "leases": c.Leases,
	}
}

// fields returns what is wrong with a ceiling.
func (c Ceiling) fields() (f []Field) {
	if c.Network != "" && !slices.Contains(networks, c.Network) {
		f = append(f, Field{"ceiling.network", fmt.Sprintf("must be none, restricted or full, not %q", c.Network)})
	}
	for _, name := range c.Runtimes {
		if !runtimeName.MatchString(name) {
			f = append(f, Field{"ceiling.runtimes", fmt.Sprintf("%q is not a name of a runtime", name)})
		}
	}
	numbers := c.numbers()
	for _, name := range slices.Sorted(maps.Keys(numbers)) {
		if numbers[name] < 0 {
			f = append(f, Field{"ceiling." + name, "must not be negative"})
		}
	}
	return f
}

// withDefaults fills in the bounds of what an environment asks for. Counts have none.
func (c Ceiling) withDefaults(b Backend) Ceiling {
	size := defaultResources(b)
	orDefault(&c.Network, NetworkRestricted)
	orDefault(&c.MemoryMB, size.MemoryMB)
	orDefault(&c.CPUMillis, size.CPUMillis)
	orDefault(&c.PIDs, size.PIDs)
	orDefault(&c.DiskMB, size.DiskMB)
	orDefault(&c.TmpMB, defaultTmpMB)
	orDefault(&c.RunMB, defaultRunMB)
	orDefault(&c.OpenFiles, defaultOpenFiles)
	orDefault(&c.StateMB, DefaultStateLimitMB)
	return c
}

// Check refuses an environment, whose defaults are filled in, that asks for more than the tenant may have. The
// operator, who is no tenant, may have everything. Errors: Forbidden with ReasonCeilingExceeded, naming each field.
func (t *Tenant) Check(s EnvironmentSpec) error {
	if t == nil {
		return nil
	}
	return t.refuse("environment", t.Ceiling.exceeded(s))
}

// CheckEnvironments refuses one more environment beside those that there are. Errors: as Check.
func (t *Tenant) CheckEnvironments(there int64) error {
	if t == nil || t.Ceiling.Environments == 0 || there < t.Ceiling.Environments {
		return nil
	}
	return t.refuse("environment", []Field{{"id", fmt.Sprintf("there are %d environments that the token may touch, and its ceiling is %d (environments)", there, t.Ceiling.Environments)}})
}

// CheckLeases refuses one more lease in an environment beside those that it has. Errors: as Check.
func (t *Tenant) CheckLeases(there int64) error {
	if t == nil || t.Ceiling.Leases == 0 || there < t.Ceiling.Leases {
		return nil
	}
	return t.refuse("lease", []Field{{"environment_id", fmt.Sprintf("the environment has %d leases whose sandboxes are not deleted, and the token's ceiling is %d (leases)", there, t.Ceiling.Leases)}})
}

func (t *Tenant) refuse(what string, fields []Field) error {
	if len(fields) == 0 {
		return nil
	}
	return &Error{Code: Forbidden, Reason: ReasonCeilingExceeded, Fields: fields, Message: fmt.Sprintf(
		"token %s is limited to the environments %s and may not have this %s: ask for less, or have the operator raise the ceiling of the token (token rotate %s --ceiling name=value)",
		t.Name, strings.Join(t.Environments, ", "), what, t.Name)}
}

// exceeded returns the fields of an environment that lie above the ceiling.
func (c Ceiling) exceeded(s EnvironmentSpec) (f []Field) {
	c = c.withDefaults(s.Backend)
	above := func(isAbove bool, field, ceiling, problem string, args ...any) {
		if isAbove {
			f = append(f, Field{field, fmt.Sprintf(problem, args...) + " (ceiling " + ceiling + ")"})
		}
	}
	most := func(field, ceiling string, asked, most int64) {
		above(asked > most, field, ceiling, "must be at most %d, not %d", most, asked)
	}
	uid, gid, named := s.Confinement.ids()
	above(slices.Index(networks, s.Network) > slices.Index(networks, c.Network), "network", "network", "must be at most %s, not %s", c.Network, s.Network)
	above(!c.Root && s.Confinement.AllowRoot, "confinement.allow_root", "root", "must be left out")
	above(!c.Root && named && (uid == 0 || gid == 0), "confinement.user", "root", "must not be root")
	above(!c.Seccomp && s.Confinement.SeccompProfile != "", "confinement.seccomp_profile", "seccomp", "must be left out")
	above(s.Confinement.Runtime != "" && !slices.Contains(c.Runtimes, s.Confinement.Runtime), "confinement.runtime", "runtimes",
		"must be left out, or one of %q", c.Runtimes)
	for i, m := range s.Mounts {
		above(m.Writable && !c.WritableMounts, fmt.Sprintf("mounts[%d].writable", i), "writable_mounts", "must be false")
	}
	most("resources.memory_mb", "memory_mb", s.Resources.MemoryMB, c.MemoryMB)
	most("resources.cpu_millis", "cpu_millis", s.Resources.CPUMillis, c.CPUMillis)
	most("resources.pids_limit", "pids_limit", s.Resources.PIDs, c.PIDs)
	most("resources.disk_mb", "disk_mb", s.Resources.DiskMB, c.DiskMB)
	most("confinement.tmp_mb", "tmp_mb", s.Confinement.TmpMB, c.TmpMB)
	most("confinement.run_mb", "run_mb", s.Confinement.RunMB, c.RunMB)
	most("confinement.open_files", "open_files", s.Confinement.OpenFiles, c.OpenFiles)
	if s.State != nil {
		most("state.size_limit_mb", "state_mb", s.State.SizeLimitMB, c.StateMB)
	}
	if s.WarmPool != nil && c.Leases > 0 {
		most("warm_pool.size", "leases", s.WarmPool.Size, c.Leases)
		most("warm_pool.max_size", "leases", s.WarmPool.MaxSize, c.Leases)
	}
	return f
}
