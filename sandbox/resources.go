package sandbox

import "fmt"

// Resources are the limits of one sandbox.
type Resources struct {
	MemoryMB  int64 `json:"memory_mb" doc:"Memory limit in MiB." minimum:"0"`
	CPUMillis int64 `json:"cpu_millis" doc:"CPU limit in thousandths of a core." minimum:"0"`
	PIDs      int64 `json:"pids_limit" doc:"Largest number of processes and threads." minimum:"0"`
	DiskMB    int64 `json:"disk_mb" doc:"Billed disk size in MB, and the limit of /workspace and /data together." minimum:"0"`
}

// DefaultResources are the default limits of a sandbox: enough for a game that one agent plays. Cloudflare has a
// default of its own.
var DefaultResources = Resources{MemoryMB: 512, CPUMillis: 500, PIDs: 256, DiskMB: 10240}

// FormerDefaultResources were the default limits on Docker of development builds before November 2026. Environments
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
