package cloudflare

import (
	"context"
	"maps"
	"net/http"
	"time"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/driver"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// Limits are the times without use after which the Worker ends a sandbox or puts it to sleep, if no reconciler does.
// Zero means never.
type Limits struct {
	TTL, SleepAfter time.Duration
}

// Cause says why a container stopped.
type Cause string

// The causes.
const (
	CauseSleep       Cause = "sleep"
	CauseIdle        Cause = "idle"
	CauseTTL         Cause = "ttl"
	CauseDeadline    Cause = "deadline"
	CauseKill        Cause = "kill"
	CauseCrash       Cause = "crash"
	CauseStartFailed Cause = "start_failed"
)

// Period is one run of a sandbox's container.
type Period struct {
	// Boot numbers the periods of a sandbox, from 1 and without gaps.
	Boot      int64
	StartedAt time.Time
	// StoppedAt is zero while the container runs, and Cause and ExitCode are unset. ExitCode is -1 if it is unknown.
	StoppedAt time.Time
	Cause     Cause
	ExitCode  int
	// CPUTime is the used CPU time as the guest last reported it: after each command, at each alarm, and before a stop
	// that was not a kill.
	CPUTime time.Duration
	// Reading is the usage at the last alarm; zero before the first one.
	Reading driver.Reading
	// Size is the size of the container, if the sandbox's creation does not determine it; otherwise zero.
	Size sandbox.Resources
}

// SandboxStatus is the status of a sandbox.
type SandboxStatus struct {
	EnvironmentID, LeaseID, AgentDID, Image string
	Generation                              int64
	Resources                               sandbox.Resources
	// Choice is the choice of its starts; nil under PolicyDefault.
	Choice   *Choice
	Deadline time.Time
	State    sandbox.State
	// SavedAt is when /data was last saved, zero as long as it has always been empty.
	CreatedAt, UsedAt, SavedAt time.Time
	// Period is the last one.
	Period Period
	// Disk is the state of the kept disk; nil if the sandbox keeps none.
	Disk *sandbox.KeptDisk
}

// settings are the settings of a sandbox, in the form of worker/src/settings.ts. Times and durations are in
// milliseconds.
type settings struct {
	EnvironmentID    string            `json:"environment_id"`
	LeaseID          string            `json:"lease_id"`
	AgentDID         string            `json:"agent_did"`
	Generation       int64             `json:"generation"`
	Type             string            `json:"environment_type"`
	ExpiryConditions []string          `json:"expiry_conditions"`
	Image            string            `json:"image"`
	Resources        sandbox.Resources `json:"resources"`
	Env              map[string]string `json:"env"`
	Config           string            `json:"config"`
	Internet         bool              `json:"internet"`
	Restricted       bool              `json:"restricted"`
	LLM              bool              `json:"llm"`
	KeepDisk         bool              `json:"keep_disk"`
	Deadline         int64             `json:"deadline_us"` // in microseconds
	TTL              int64             `json:"ttl_ms"`
	SleepAfter       int64             `json:"sleep_after_ms"`
	LeaseTTL         int64             `json:"lease_ttl_ms"`
	LeaseSleepAfter  int64             `json:"lease_sleep_after_ms"`
	Choice           *Choice           `json:"choice,omitempty"`
}

func settingsOf(spec driver.SandboxSpec, l Limits) settings {
	env := map[string]string{"HOME": "/workspace"}
	restricted := spec.Network == sandbox.NetworkRestricted
	if restricted {
		for _, name := range caVariables {
			env[name] = caFile
		}
	}
	maps.Copy(env, driver.LLMVariables(llmAddress, spec.LLM))
	maps.Copy(env, spec.Env)
	maps.Copy(env, spec.SystemVariables())
	return settings{
		EnvironmentID: spec.EnvironmentID, LeaseID: spec.LeaseID, AgentDID: spec.AgentDID, Generation: spec.Generation,
		Image: spec.Image, Env: env, Config: string(spec.Config),
		Internet: spec.Network == sandbox.NetworkFull, Restricted: restricted, LLM: len(spec.LLM) > 0,
		KeepDisk: spec.KeepDisk,
		Type:     string(spec.EnvironmentType), ExpiryConditions: append([]string{}, spec.ExpiryConditions...),
		Resources: spec.Resources,
		LeaseTTL:  spec.TTL.D().Milliseconds(), LeaseSleepAfter: spec.SleepAfter.D().Milliseconds(),
		Deadline: spec.Deadline.UnixMicro(), TTL: l.TTL.Milliseconds(), SleepAfter: l.SleepAfter.Milliseconds(),
	}
}

// Spawn creates a sandbox and returns when it accepts commands. It is idempotent. Disk, memory and CPU are those of the
// Worker's container application. Errors: CapacityExceeded; Invalid; Failed, if the sandbox did not come up or has
// stopped since: Kill removes it.
func (w *Worker) Spawn(ctx context.Context, spec driver.SandboxSpec, l Limits) error {
	return w.SpawnChosen(ctx, spec, l, nil)
}

// SpawnChosen is Spawn with the choice of each start of the sandbox; nil under PolicyDefault.
func (w *Worker) SpawnChosen(ctx context.Context, spec driver.SandboxSpec, l Limits, choice *Choice) error {
	if err := checkSpec(spec); err != nil {
		return err
	}
	r := onSandbox(spec.Handle, http.MethodPut, "", "start")
	s := settingsOf(spec, l)
	s.Choice = choice
	r.body = s
	return w.call(ctx, r, nil)
}

// maxConfig bounds config.json. It is an argument of process 1, which Linux limits to 128 KiB.
const maxConfig = 96 << 10

func checkSpec(spec driver.SandboxSpec) error {
	var f []sandbox.Field
	bad := func(name, problem string) { f = append(f, sandbox.Field{Name: name, Problem: problem}) }
	if spec.Deadline.IsZero() {
		bad("deadline", "must be set: no sandbox runs forever")
	}
	if len(spec.Config) > maxConfig {
		bad("config", "must be at most 96 KiB")
	}
	if spec.AgentDID == "" {
		bad("agent_did", "must be set: this backend has no warm pool")
	}
	if len(spec.Mounts) > 0 {
		bad("mounts", "must be empty: this backend has no host to mount from")
	}
	return sandbox.InvalidFields("cloudflare: sandbox "+spec.SandboxID, f)
}

// Sleep stops the container, which gets 10 s to end. Its files are lost, except /data, which is saved once its programs
// have ended, and the disk if the sandbox keeps it. A sandbox that is asleep is success. Errors: NotFound, Failed.
func (w *Worker) Sleep(ctx context.Context, h driver.Handle) error {
	return w.call(ctx, onSandbox(h, http.MethodPost, "sleep", "stop"), nil)
}

// Wake starts the container with the saved /data, and with the kept disk or an empty one. A sandbox that is awake is
// success. Errors: NotFound, CapacityExceeded, Failed.
func (w *Worker) Wake(ctx context.Context, h driver.Handle) error {
	return w.call(ctx, onSandbox(h, http.MethodPost, "wake", "start"), nil)
}

// renewal reports a use to the Worker, in the form of worker/src/settings.ts. All values are in milliseconds.
type renewal struct {
	TTL             int64 `json:"ttl_ms"`
	SleepAfter      int64 `json:"sleep_after_ms"`
	LeaseTTL        int64 `json:"lease_ttl_ms"`
	LeaseSleepAfter int64 `json:"lease_sleep_after_ms"`
}

// Touch records that a sandbox was used just now. It sets the Worker's limits, and the lease's, which are
// informational. It returns the new status. A sandbox that has ended by its ttl may then be started again. Errors:
// NotFound.
func (w *Worker) Touch(ctx context.Context, h driver.Handle, lease driver.Limits, l Limits) (SandboxStatus, error) {
	r := onSandbox(h, http.MethodPost, "renew", "report a use to it")
	r.body = renewal{
		TTL: l.TTL.Milliseconds(), SleepAfter: l.SleepAfter.Milliseconds(),
		LeaseTTL: lease.TTL.D().Milliseconds(), LeaseSleepAfter: lease.SleepAfter.D().Milliseconds(),
	}
	var answer sandboxStatus
	if err := w.call(ctx, r, &answer); err != nil {
		return SandboxStatus{}, err
	}
	return answer.decode(), nil
}

// Kill ends a sandbox and deletes all its data except its periods. Absent is success.
func (w *Worker) Kill(ctx context.Context, h driver.Handle) error {
	return w.call(ctx, onSandbox(h, http.MethodDelete, "", "end"), nil)
}

// Inspect returns the status of a sandbox without waking it. Errors: NotFound.
func (w *Worker) Inspect(ctx context.Context, h driver.Handle) (SandboxStatus, error) {
	var answer sandboxStatus
	if err := w.call(ctx, onSandbox(h, http.MethodGet, "", "look at it"), &answer); err != nil {
		return SandboxStatus{}, err
	}
	return answer.decode(), nil
}

// sandboxStatus is a SandboxStatus in the form of worker/src/sandbox.ts.
type sandboxStatus struct {
	Settings  settings      `json:"settings"`
	State     sandbox.State `json:"state"`
	CreatedAt int64         `json:"created_at"`
	UsedAt    int64         `json:"used_at"`
	SavedAt   int64         `json:"saved_at"`
	Period    period        `json:"period"`
	Disk      *keptDisk     `json:"disk"`
}

// keptDisk is a sandbox.KeptDisk in the form of worker/src/sandbox.ts.
type keptDisk struct {
	SavedAt int64  `json:"saved_at"`
	Lost    string `json:"lost"`
}

func (d *keptDisk) decode() *sandbox.KeptDisk {
	if d == nil {
		return nil
	}
	return &sandbox.KeptDisk{SavedAt: milliseconds(d.SavedAt), Lost: d.Lost}
}

func (a sandboxStatus) decode() SandboxStatus {
	s := a.Settings
	return SandboxStatus{
		EnvironmentID: s.EnvironmentID,
		LeaseID:       s.LeaseID,
		AgentDID:      s.AgentDID,
		Image:         s.Image,
		Generation:    s.Generation,
		Resources:     s.Resources,
		Choice:        s.Choice,
		Deadline:      time.UnixMicro(s.Deadline).UTC(),
		State:         a.State,
		Period:        a.Period.decode(),
		Disk:          a.Disk.decode(),
		CreatedAt:     milliseconds(a.CreatedAt),
		UsedAt:        milliseconds(a.UsedAt),
		SavedAt:       milliseconds(a.SavedAt),
	}
}

// Periods returns the periods of a sandbox in order, until a week after its end. An unknown sandbox has none.
func (w *Worker) Periods(ctx context.Context, h driver.Handle) ([]Period, error) {
	var answer struct {
		Periods []period `json:"periods"`
	}
	if err := w.call(ctx, onSandbox(h, http.MethodGet, "periods", "ask when it ran"), &answer); err != nil {
		return nil, err
	}
	var all []Period
	for _, p := range answer.Periods {
		all = append(all, p.decode())
	}
	return all, nil
}

// period is a Period in the form of worker/src/store.ts.
type period struct {
	Boot        int64  `json:"incarnation"`
	StartedAt   int64  `json:"started_at"`
	StoppedAt   *int64 `json:"stopped_at"`
	Cause       *Cause `json:"cause"`
	ExitCode    *int   `json:"exit_code"`
	CPU         int64  `json:"cpu_us"` // in microseconds
	MemoryBytes int64  `json:"memory_bytes"`
	PIDs        int64  `json:"pids"`
	ReadAt      int64  `json:"read_at"`
	Size        string `json:"size"`
}

func (p period) decode() Period {
	out := Period{
		Boot:      p.Boot,
		StartedAt: milliseconds(p.StartedAt),
		CPUTime:   time.Duration(p.CPU) * time.Microsecond,
		Size:      decodeSize(p.Size),
	}
	if p.ReadAt != 0 {
		used := driver.Usage{CPUTime: out.CPUTime, MemoryBytes: p.MemoryBytes, PIDs: p.PIDs}
		out.Reading = driver.Reading{Usage: used, Boot: p.Boot, At: milliseconds(p.ReadAt)}
	}
	if p.StoppedAt == nil {
		return out
	}
	out.StoppedAt, out.ExitCode = milliseconds(*p.StoppedAt), -1
	if p.Cause != nil {
		out.Cause = *p.Cause
	}
	if p.ExitCode != nil {
		out.ExitCode = *p.ExitCode
	}
	return out
}

// milliseconds converts Unix milliseconds; 0 is the zero time.
func milliseconds(n int64) time.Time {
	if n == 0 {
		return time.Time{}
	}
	return time.UnixMilli(n).UTC()
}
