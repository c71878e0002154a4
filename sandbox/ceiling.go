package sandbox

import (
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
)

// Ceiling bounds what a tenant may request. No other type defines such bounds. A field that is left out has the
// bound that is safe without an operator's decision; for a size this is FormerDefaultResources, on Cloudflare basic.
type Ceiling struct {
	Network        NetworkMode `json:"network,omitempty" enum:"none,restricted,full" doc:"Widest network mode. Default restricted."`
	Root           bool        `json:"root,omitempty" doc:"Sandboxes may run as root. Default false."`
	Seccomp        bool        `json:"seccomp,omitempty" doc:"Environments may set their own seccomp profile. Default false."`
	WritableMounts bool        `json:"writable_mounts,omitempty" doc:"Environments may mount host directories writable, if the service allows the directory. Default false."`
	Runtimes       []string    `json:"runtimes,omitempty" doc:"Container runtimes that environments may name. Default: none, so that only the engine's default runtime is used."`
	MemoryMB       int64       `json:"memory_mb,omitempty" minimum:"0" doc:"Largest memory_mb. Default: 4096, on Cloudflare that of basic."`
	CPUMillis      int64       `json:"cpu_millis,omitempty" minimum:"0" doc:"Largest cpu_millis. Default: 2000, on Cloudflare that of basic."`
	PIDs           int64       `json:"pids_limit,omitempty" minimum:"0" doc:"Largest pids_limit. Default: 256, on Cloudflare that of basic."`
	DiskMB         int64       `json:"disk_mb,omitempty" minimum:"0" doc:"Largest disk_mb. Default: 10240, on Cloudflare that of basic."`
	TmpMB          int64       `json:"tmp_mb,omitempty" minimum:"0" doc:"Largest tmp_mb. Default 512."`
	RunMB          int64       `json:"run_mb,omitempty" minimum:"0" doc:"Largest run_mb. Default 16."`
	OpenFiles      int64       `json:"open_files,omitempty" minimum:"0" doc:"Largest open_files. Default 16384."`
	SnapshotMB     int64       `json:"state_mb,omitempty" minimum:"0" doc:"Largest state.size_limit_mb. Default 256."`
	Environments   int64       `json:"environments,omitempty" minimum:"0" doc:"Largest number of environments that match the token's patterns. Default: no limit."`
	Leases         int64       `json:"leases,omitempty" minimum:"0" doc:"Largest number of leases that an environment may have at once, and of sandboxes in its warm pool. Default: no limit."`
}

// networks lists the modes from the narrowest to the widest.
var networks = []NetworkMode{NetworkNone, NetworkRestricted, NetworkFull}

// IsZero reports whether only the default bounds apply.
func (c Ceiling) IsZero() bool { return reflect.ValueOf(c).IsZero() }

// numbers returns the numeric bounds by JSON name.
func (c Ceiling) numbers() map[string]int64 {
	return map[string]int64{
		"memory_mb":    c.MemoryMB,
		"cpu_millis":   c.CPUMillis,
		"pids_limit":   c.PIDs,
		"disk_mb":      c.DiskMB,
		"tmp_mb":       c.TmpMB,
		"run_mb":       c.RunMB,
		"open_files":   c.OpenFiles,
		"state_mb":     c.SnapshotMB,
		"environments": c.Environments,
		"leases":       c.Leases,
	}
}

// fields returns the problems of a ceiling.
func (c Ceiling) fields() (f []Field) {
	if c.Network != "" && !slices.Contains(networks, c.Network) {
		f = append(f, Field{"ceiling.network", fmt.Sprintf("must be none, restricted or full, not %q", c.Network)})
	}
	for _, name := range c.Runtimes {
		if !runtimeName().MatchString(name) {
			f = append(f, Field{"ceiling.runtimes", fmt.Sprintf("%q is not a valid runtime name", name)})
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

// withDefaults fills in the bounds of sizes and network. Counts have no default bound.
func (c Ceiling) withDefaults(b Backend) Ceiling {
	size := defaultResources(b)
	if b == Docker {
		size = FormerDefaultResources
	}
	orDefault(&c.Network, NetworkRestricted)
	orDefault(&c.MemoryMB, size.MemoryMB)
	orDefault(&c.CPUMillis, size.CPUMillis)
	orDefault(&c.PIDs, size.PIDs)
	orDefault(&c.DiskMB, size.DiskMB)
	orDefault(&c.TmpMB, defaultTmpMB)
	orDefault(&c.RunMB, defaultRunMB)
	orDefault(&c.OpenFiles, defaultOpenFiles)
	orDefault(&c.SnapshotMB, DefaultSnapshotLimitMB)
	return c
}

// Check rejects an environment that exceeds the tenant's ceiling. Its defaults must be filled in. A nil tenant
// is the operator, who has no ceiling. Errors: Forbidden with ReasonCeilingExceeded, naming each field.
func (t *Tenant) Check(s EnvironmentSpec) error {
	if t == nil {
		return nil
	}
	return t.refuse("environment", t.Ceiling.exceeded(s))
}

// CheckEnvironments rejects one more environment if there already are as many as allowed. Errors: as Check.
func (t *Tenant) CheckEnvironments(there int64) error {
	if t == nil || t.Ceiling.Environments == 0 || there < t.Ceiling.Environments {
		return nil
	}
	return t.refuse("environment",
		[]Field{{"id", fmt.Sprintf("the token's patterns already match %s, and its ceiling is %d (environments)",
			counted(there, "environment", "environments"), t.Ceiling.Environments)}})
}

// counted returns a number with its noun.
func counted(n int64, one, many string) string {
	if n == 1 {
		return "1 " + one
	}
	return fmt.Sprintf("%d %s", n, many)
}

// CheckLeases rejects one more lease in an environment that has as many as allowed. Errors: as Check.
func (t *Tenant) CheckLeases(there int64) error {
	if t == nil || t.Ceiling.Leases == 0 || there < t.Ceiling.Leases {
		return nil
	}
	return t.refuse("lease", []Field{{"environment_id",
		fmt.Sprintf("the environment has %s whose sandboxes are not deleted, and the token's ceiling is %d (leases)",
			counted(there, "lease", "leases"), t.Ceiling.Leases)}})
}

func (t *Tenant) refuse(what string, fields []Field) error {
	if len(fields) == 0 {
		return nil
	}
	return &Error{Code: Forbidden, Reason: ReasonCeilingExceeded, Fields: fields, Message: fmt.Sprintf(
		"token %s is limited to the environments %s and this %s exceeds its ceiling: request less, or ask "+
			"the operator to raise the ceiling (token rotate %s --ceiling name=value)",
		t.Name, strings.Join(t.Environments, ", "), what, t.Name)}
}

// exceeded returns the fields of an environment that exceed the ceiling.
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
	above(c.Network == NetworkNone && len(s.LLM) > 0, "llm", "network",
		"must not be set with the ceiling %s: a route reaches its upstream", c.Network)
	above(slices.Index(networks, s.Network) > slices.Index(networks, c.Network), "network", "network",
		"must be at most %s, not %s", c.Network, s.Network)
	above(!c.Root && s.Confinement.AllowRoot, "confinement.allow_root", "root", "must not be set")
	above(!c.Root && named && (uid == 0 || gid == 0), "confinement.user", "root", "must not be root")
	above(!c.Seccomp && s.Confinement.SeccompProfile != "", "confinement.seccomp_profile", "seccomp", "must not be set")
	above(s.Confinement.Runtime != "" && !slices.Contains(c.Runtimes, s.Confinement.Runtime), "confinement.runtime",
		"runtimes", "must not be set, or must be one of %q", c.Runtimes)
	for i, m := range s.Mounts {
		above(m.Writable && !c.WritableMounts, fmt.Sprintf("mounts[%d].writable", i), "writable_mounts", "must be false")
	}
	size := s.Size() // with that of companions
	most("resources.memory_mb", "memory_mb", size.MemoryMB, c.MemoryMB)
	most("resources.cpu_millis", "cpu_millis", size.CPUMillis, c.CPUMillis)
	most("resources.pids_limit", "pids_limit", size.PIDs, c.PIDs)
	most("resources.disk_mb", "disk_mb", size.DiskMB, c.DiskMB)
	most("confinement.tmp_mb", "tmp_mb", s.Confinement.TmpMB, c.TmpMB)
	most("confinement.run_mb", "run_mb", s.Confinement.RunMB, c.RunMB)
	most("confinement.open_files", "open_files", s.Confinement.OpenFiles, c.OpenFiles)
	if s.Snapshot != nil {
		most("state.size_limit_mb", "state_mb", s.Snapshot.SizeLimitMB, c.SnapshotMB)
	}
	if s.WarmPool != nil && c.Leases > 0 {
		most("warm_pool.size", "leases", s.WarmPool.Size, c.Leases)
		most("warm_pool.max_size", "leases", s.WarmPool.MaxSize, c.Leases)
	}
	return f
}
