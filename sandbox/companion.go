package sandbox

import (
	"fmt"
	"maps"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"time"
)

// Limits of companions.
const (
	// MaxCompanions limits the companions of a sandbox. Each is a separate container. With four, an engine has five times
	// the containers, volumes and starts.
	MaxCompanions = 4
	// MaxCompanionRestarts limits the restarts of a companion in one generation of a lease.
	MaxCompanionRestarts = 5
	// MaxCompanionCheck limits one health check of a companion that was ready, whatever its timeout.
	MaxCompanionCheck = Duration(30 * time.Second)
	// CompanionUnhealthyAfter is the number of failed checks in a row that make a ready companion unhealthy.
	CompanionUnhealthyAfter = 3

	DefaultHealthInterval = Duration(time.Second)
	DefaultHealthTimeout  = Duration(5 * time.Second)
	DefaultStartPeriod    = Duration(time.Minute)
	MaxStartPeriod        = Duration(10 * time.Minute)
)

// DefaultCompanionResources are the default limits of a companion.
var DefaultCompanionResources = Resources{MemoryMB: 512, CPUMillis: 500, PIDs: 256, DiskMB: 1024}

// companionName is the form of a companion's name. Names on the engine contain it.
var companionName = regexp.MustCompile(`^[a-z0-9][a-z0-9-]{0,29}$`)

// IsCompanionName reports whether a companion may have a name.
func IsCompanionName(name string) bool { return companionName.MatchString(name) }

// CompanionRestart says what happens to a companion whose program ended on its own, or that became unhealthy.
type CompanionRestart string

// The restarts.
const (
	// CompanionNever: it stays ended, and the companion is failed.
	CompanionNever CompanionRestart = "never"
	// CompanionOnFailure: it restarts after an exit code other than 0, and when it becomes unhealthy, at most
	// MaxCompanionRestarts times.
	CompanionOnFailure CompanionRestart = "on_failure"
)

// Companion is a container that lives with a sandbox and shares only its network.
type Companion struct {
	Image string `json:"image" doc:"Image reference on the engine, pinned by digest or id if possible."`
	// Command is empty for the image's own entrypoint and command.
	Command []string          `json:"command,omitempty" doc:"The program and its arguments, run without a shell. Default: the entrypoint and command of the image."`
	Env     map[string]string `json:"env,omitempty" doc:"Environment variables. Do not put secrets here."`
	// Secrets are names of the environment's secrets.
	Secrets     []string             `json:"secrets,omitempty" doc:"Names of the environment's secrets that the companion gets as files in /run/secrets. Default: none."`
	Resources   Resources            `json:"resources,omitzero" doc:"Limits. They add to the billed size of the sandbox. Default: 512 MiB, 0.5 cores, 256 processes, 1024 MB of disk."`
	HealthCheck CompanionHealthCheck `json:"health_check,omitzero" doc:"When the companion is ready, and healthy later. It must have command or port. Default: ready as soon as its program has started, and not checked later."`
	Restart     CompanionRestart     `json:"restart,omitempty" enum:"never,on_failure" doc:"Whether it starts again: on_failure does so after its program ended with an exit code other than 0, and when it becomes unhealthy, at most 5 times. Default never."`
}

// Companions are the companions of a sandbox, by name.
type Companions map[string]Companion

// CompanionHealthCheck says when a companion is ready, and whether it is healthy later. At most one of Command and Port
// is set.
type CompanionHealthCheck struct {
	Command []string `json:"command,omitempty" doc:"A program in the companion that ends with exit code 0 once it is healthy, with its arguments, run without a shell."`
	Port    int      `json:"port,omitempty" doc:"A TCP port on 127.0.0.1 that accepts connections once the companion is healthy."`
	Path    string   `json:"path,omitempty" doc:"A path that must answer GET on the port with a status from 200 to 399. Default: a connection is enough."`
	// Interval is the pause between two checks, and Timeout limits each check. StartPeriod limits all checks until the
	// companion is ready.
	Interval    Duration `json:"interval,omitempty" doc:"Pause between two checks, 100ms to 10m. A companion that is ready is checked at most every 10s. Default 1s."`
	Timeout     Duration `json:"timeout,omitempty" doc:"Limit of one check, 100ms to 10m. Once the companion is ready, at most 30s. Default 5s."`
	StartPeriod Duration `json:"start_period,omitempty" doc:"The companion failed if it is not healthy this long after its start. 1s to 10m. Default 1m."`
}

// IsSet reports whether there is anything to check.
func (h CompanionHealthCheck) IsSet() bool { return len(h.Command) > 0 || h.Port != 0 }

// WithDefaults returns the companion with all defaults filled in.
func (c Companion) WithDefaults() Companion {
	orDefault(&c.Resources.MemoryMB, DefaultCompanionResources.MemoryMB)
	orDefault(&c.Resources.CPUMillis, DefaultCompanionResources.CPUMillis)
	orDefault(&c.Resources.PIDs, DefaultCompanionResources.PIDs)
	orDefault(&c.Resources.DiskMB, DefaultCompanionResources.DiskMB)
	orDefault(&c.Restart, CompanionNever)
	orDefault(&c.HealthCheck.StartPeriod, DefaultStartPeriod)
	if c.HealthCheck.IsSet() {
		orDefault(&c.HealthCheck.Interval, DefaultHealthInterval)
		orDefault(&c.HealthCheck.Timeout, DefaultHealthTimeout)
	}
	return c
}

func (all Companions) withDefaults() Companions {
	if len(all) == 0 {
		return nil
	}
	filled := make(Companions, len(all))
	for name, c := range all {
		filled[name] = c.WithDefaults()
	}
	return filled
}

// Size returns the billed size of a sandbox with its companions.
func (s EnvironmentSpec) Size() Resources {
	return s.Resources.Plus(s.Companions.Resources())
}

// Names returns the names in order.
func (all Companions) Names() []string { return slices.Sorted(maps.Keys(all)) }

// Equal reports whether two environments have the same companions.
func (all Companions) Equal(others Companions) bool {
	return len(all) == 0 && len(others) == 0 || reflect.DeepEqual(all, others)
}

// Resources adds up the limits of companions.
func (all Companions) Resources() (sum Resources) {
	for _, c := range all {
		sum = sum.Plus(c.Resources)
	}
	return sum
}

// Plus returns the sum of r and o.
func (r Resources) Plus(o Resources) Resources {
	return Resources{MemoryMB: r.MemoryMB + o.MemoryMB, CPUMillis: r.CPUMillis + o.CPUMillis, PIDs: r.PIDs + o.PIDs,
		DiskMB: r.DiskMB + o.DiskMB}
}

// companionFields checks the companions of an environment. Their defaults must be filled in.
func (s EnvironmentSpec) companionFields() (f []Field) {
	if len(s.Companions) > MaxCompanions {
		f = append(f, Field{"companions", fmt.Sprintf("must be at most %d, not %d", MaxCompanions, len(s.Companions))})
	}
	for _, name := range s.Companions.Names() {
		prefix := "companions." + name + "."
		if !IsCompanionName(name) {
			f = append(f, Field{"companions." + name,
				"its name must be 1 to 30 characters of a-z, 0-9 and '-', starting with a letter or digit"})
		}
		c := s.Companions[name]
		f = append(f, c.fields(prefix)...)
		for i, secret := range c.Secrets {
			switch field := fmt.Sprintf("%ssecrets[%d]", prefix, i); {
			case !slices.Contains(s.Secrets, secret):
				f = append(f, Field{field, fmt.Sprintf("must be one of the environment's secrets, not %q", secret)})
			case s.IsCredential(secret):
				f = append(f, Field{field, fmt.Sprintf("must not be %q: no sandbox or companion gets a credential", secret)})
			}
		}
	}
	return f
}

// fields checks a companion. Field names start with prefix.
func (c Companion) fields(prefix string) (f []Field) {
	bad := func(name, problem string, args ...any) {
		f = append(f, Field{prefix + name, fmt.Sprintf(problem, args...)})
	}
	if c.Image == "" {
		bad("image", "must be set to an image reference")
	}
	if len(c.Command) > 0 && c.Command[0] == "" {
		bad("command", "must name a program")
	}
	if c.Restart != CompanionNever && c.Restart != CompanionOnFailure {
		bad("restart", "must be never or on_failure, not %q", c.Restart)
	}
	checkRange(bad, "resources.memory_mb", c.Resources.MemoryMB, MinMemoryMB, MaxMemoryMB)
	if cpu := c.Resources.CPUMillis; cpu < MinCPUMillis || cpu > MaxCPUMillis {
		bad("resources.cpu_millis", "must be between %g and %g cores, not %g", MinCPUMillis/1000.,
			MaxCPUMillis/1000., float64(cpu)/1000)
	}
	checkRange(bad, "resources.pids_limit", c.Resources.PIDs, MinPIDs, MaxPIDs)
	checkRange(bad, "resources.disk_mb", c.Resources.DiskMB, MinDiskMB, MaxDiskMB)
	f = append(f, AnyRules().fields(prefix, slices.Sorted(maps.Keys(c.Env)), "")...)
	return append(f, c.HealthCheck.fields(prefix+"health_check.")...)
}

func (h CompanionHealthCheck) fields(prefix string) (f []Field) {
	bad := func(name, problem string, args ...any) {
		f = append(f, Field{prefix + name, fmt.Sprintf(problem, args...)})
	}
	if len(h.Command) > 0 && h.Port != 0 {
		bad("port", "must not be set beside command")
	}
	if len(h.Command) > 0 && h.Command[0] == "" {
		bad("command", "must name a program")
	}
	if h.Port < 0 || h.Port > 65535 {
		bad("port", "must be between 1 and 65535, not %d", h.Port)
	}
	if h.Path != "" && (h.Port == 0 || !strings.HasPrefix(h.Path, "/")) {
		bad("path", "must start with / and requires a port")
	}
	if !h.IsSet() && h.Path == "" &&
		(h.Interval != 0 || h.Timeout != 0 || h.StartPeriod != 0 && h.StartPeriod != DefaultStartPeriod) {
		f = append(f, Field{strings.TrimSuffix(prefix, "."),
			"must have command or port: without them, it checks nothing"})
	}
	if h.StartPeriod < Duration(time.Second) || h.StartPeriod > MaxStartPeriod {
		bad("start_period", "must be between 1s and %s", MaxStartPeriod)
	}
	if h.IsSet() && (h.Interval < Duration(100*time.Millisecond) || h.Interval > MaxStartPeriod) {
		bad("interval", "must be between 100ms and %s", MaxStartPeriod)
	}
	if h.IsSet() && (h.Timeout < Duration(100*time.Millisecond) || h.Timeout > MaxStartPeriod) {
		bad("timeout", "must be between 100ms and %s", MaxStartPeriod)
	}
	return f
}

// CompanionState is the state of a companion.
type CompanionState string

// The states.
const (
	// CompanionStarting: it has not been healthy since its latest start.
	CompanionStarting CompanionState = "starting"
	// CompanionReady: its latest checks show that it is healthy. It sleeps with its sandbox.
	CompanionReady CompanionState = "ready"
	// CompanionUnhealthy: it was ready and its program runs, but CompanionUnhealthyAfter checks in a row failed.
	CompanionUnhealthy CompanionState = "unhealthy"
	// CompanionFailed: its program ended, it never became healthy, or its container was removed.
	CompanionFailed CompanionState = "failed"
)

// CompanionStatus is a companion of a lease's sandbox.
type CompanionStatus struct {
	Name  string         `json:"name"`
	Image string         `json:"image"`
	State CompanionState `json:"state" enum:"starting,ready,unhealthy,failed"`
	Since time.Time      `json:"since" doc:"When it entered its state."`
	// Restarts counts the restarts after failures in this generation.
	Restarts int64 `json:"restarts"`
	// Message says why it is unhealthy or failed.
	Message string `json:"message,omitempty"`
}

// CompanionFailure is the data of companion.failed and companion.unhealthy.
type CompanionFailure struct {
	Name   string `json:"name"`
	Reason string `json:"reason"`
	// ExitCode is nil if its program did not end.
	ExitCode *int `json:"exit_code,omitempty"`
	// Output is the end of its output.
	Output string `json:"output,omitempty"`
	// Restarts: it will restart.
	Restarts bool `json:"restarts,omitempty"`
}

// CompanionLogRequest asks for the log of a companion's program: standard output and standard error since its latest
// start, in the order written.
type CompanionLogRequest struct {
	LeaseRef
	// Name is the companion's name.
	Name string
	// Offset is the first byte to return, from 0. Offsets count all bytes written since the start.
	Offset int64
	// Follow continues until the program ends. Without it, only existing output is returned.
	Follow bool
}
