package sandbox

import (
	"time"
)

// DiskUsage is what files take up in a sandbox.
type DiskUsage struct {
	// Bytes are those that the files in Roots have on disk, without holes.
	Bytes int64 `json:"bytes"`
	// Files counts everything in Roots.
	Files int64 `json:"files"`
	// Complete: all of it was counted. There is a limit of a million files.
	Complete bool `json:"complete"`
}

// LeaseUsage is what a lease's sandbox uses now.
type LeaseUsage struct {
	LeaseID    string `json:"lease_id"`
	Generation int64  `json:"generation"`
	SandboxID  string `json:"sandbox_id"`
	// State is what the backend says the sandbox is doing; one that is stopped uses nothing but disk.
	State       State    `json:"state"`
	CPUTime     Duration `json:"cpu_time" doc:"Since the sandbox last started."`
	MemoryBytes int64    `json:"memory_bytes"`
	PIDs        int64    `json:"pids"`
	// Limits are what it may use.
	Limits Resources `json:"limits"`
	// Disk is nil while the sandbox sleeps: nothing in it runs that could count.
	Disk      *DiskUsage `json:"disk,omitempty"`
	SampledAt time.Time  `json:"sampled_at"`
}

// What is kept of what leases' sandboxes used.
const (
	// UsageKept is how long: what happened today can be looked into, and the ledger's size stays bounded by how many
	// sandboxes are awake.
	UsageKept = 24 * time.Hour
	// MaxUsageGap is the longest time between two samples that a mean spans: a sample may be missed.
	MaxUsageGap = 3 * time.Minute
)

// UsageHistoryQuery selects samples of a lease's sandbox, from From to before To. Zero times mean: all that is
// kept, until now.
type UsageHistoryQuery struct {
	LeaseRef
	From, To time.Time
}

// Validate checks the query by itself. Errors: Invalid.
func (q UsageHistoryQuery) Validate() error {
	if !q.To.IsZero() && q.To.Before(q.From) {
		return InvalidFields("the usage asked for", []Field{{Name: "from", Problem: "must not be after to"}})
	}
	return nil
}

// UsageSample is what a sandbox used at one moment.
type UsageSample struct {
	At          time.Time `json:"at"`
	CPUTime     Duration  `json:"cpu_time" doc:"Since the sandbox last started."`
	CPUMillis   *int64    `json:"cpu_millis,omitempty" doc:"Mean since the sample before, in thousandths of a core. Absent where that is more than three minutes ago, or the sandbox has started since."`
	MemoryBytes int64     `json:"memory_bytes"`
	PIDs        int64     `json:"pids"`
}

// Since returns the sample with its mean since another one, which is not known across a gap or a start of the
// sandbox.
func (s UsageSample) Since(before UsageSample) UsageSample {
	s.CPUMillis = nil
	took, used := s.At.Sub(before.At), s.CPUTime.D()-before.CPUTime.D()
	if took > 0 && took <= MaxUsageGap && used >= 0 {
		millis := int64(1000 * float64(used) / float64(took))
		s.CPUMillis = &millis
	}
	return s
}

// LeaseUsageHistory is what a lease's sandbox used while it was awake, sampled about once a minute and kept for
// UsageKept.
type LeaseUsageHistory struct {
	LeaseID    string `json:"lease_id"`
	Generation int64  `json:"generation"`
	SandboxID  string `json:"sandbox_id"`
	// Limits are what it may use.
	Limits Resources `json:"limits"`
	// Samples are the oldest first. While it slept, or its backend was out of reach, there are none.
	Samples []UsageSample `json:"samples"`
}

// LeaseHealth is whether a lease's sandbox can be used.
type LeaseHealth struct {
	LeaseID    string      `json:"lease_id"`
	Generation int64       `json:"generation"`
	SandboxID  string      `json:"sandbox_id"`
	Status     LeaseStatus `json:"status" enum:"pending,active,expired,destroyed"`
	Phase      Phase       `json:"phase" enum:"pending,awake,asleep,gone"`
	// Healthy: it takes commands, or it sleeps as it should and its backend has it.
	Healthy bool `json:"healthy"`
	// Problem says why it is not healthy.
	Problem string `json:"problem,omitempty"`
	// BackendReachable: its backend instance has answered.
	BackendReachable bool `json:"backend_reachable"`
	// State is what the backend says the sandbox is doing, "" when it was not asked or has no sandbox.
	State     State     `json:"state,omitempty"`
	CheckedAt time.Time `json:"checked_at"`
}
