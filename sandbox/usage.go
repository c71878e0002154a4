package sandbox

import "time"

// DiskUsage is the disk space that a sandbox's files use.
type DiskUsage struct {
	// Bytes is the space that the files in Roots use on disk, without holes.
	Bytes int64 `json:"bytes"`
	// Files counts files and directories in Roots.
	Files int64 `json:"files"`
	// Complete: everything was counted. Counting stops at a million files.
	Complete bool `json:"complete"`
}

// LeaseUsage is what a lease's sandbox uses now.
type LeaseUsage struct {
	LeaseID    string `json:"lease_id"`
	Generation int64  `json:"generation"`
	SandboxID  string `json:"sandbox_id"`
	// State is the state that the backend reports. A stopped sandbox uses only disk.
	State       State    `json:"state"`
	CPUTime     Duration `json:"cpu_time" doc:"CPU time since the sandbox last started."`
	CPUPercent  *float64 `json:"cpu_percent,omitempty" doc:"Mean CPU use since the last sample of the history, in percent of one core. Absent if that sample is more than three minutes old, or the sandbox has started since."`
	MemoryBytes int64    `json:"memory_bytes"`
	PIDs        int64    `json:"pids"`
	// Limits are the sandbox's limits.
	Limits Resources `json:"limits"`
	// Disk is nil while the sandbox sleeps, because nothing in it can count files.
	Disk      *DiskUsage `json:"disk,omitempty"`
	SampledAt time.Time  `json:"sampled_at"`
}

// Retention of usage samples.
const (
	// UsageKept is how long samples are kept: long enough to inspect today's events, and short enough that the
	// number of awake sandboxes bounds the ledger's size.
	UsageKept = 24 * time.Hour
	// MaxUsageGap is the longest time between two samples for a mean. It allows for one missed sample.
	MaxUsageGap = 3 * time.Minute
)

// UsageHistoryQuery selects samples of a lease's sandbox, from From until before To. Zero times mean: all
// retained samples, until now.
type UsageHistoryQuery struct {
	LeaseRef
	From, To time.Time
}

// Validate checks the query without the ledger. Errors: Invalid.
func (q UsageHistoryQuery) Validate() error {
	if !q.To.IsZero() && q.To.Before(q.From) {
		return InvalidFields("the usage query", []Field{{Name: "from", Problem: "must not be after to"}})
	}
	return nil
}

// UsageSample is what a sandbox used at one time.
type UsageSample struct {
	At          time.Time `json:"at"`
	CPUTime     Duration  `json:"cpu_time" doc:"CPU time since the sandbox last started."`
	CPUMillis   *int64    `json:"cpu_millis,omitempty" doc:"Mean CPU use since the previous sample, in thousandths of a core. Absent if that sample is more than three minutes old, or the sandbox has started since."`
	MemoryBytes int64     `json:"memory_bytes"`
	PIDs        int64     `json:"pids"`
}

// Since returns the sample with its mean CPU use since the sample before. The mean is nil across a gap or a
// start of the sandbox.
func (s UsageSample) Since(before UsageSample) UsageSample {
	s.CPUMillis = nil
	took, used := s.At.Sub(before.At), s.CPUTime.D()-before.CPUTime.D()
	if took > 0 && took <= MaxUsageGap && used >= 0 {
		millis := int64(1000 * float64(used) / float64(took))
		s.CPUMillis = &millis
	}
	return s
}

// LeaseUsageHistory is what a lease's sandbox used while awake: about one sample a minute, retained for
// UsageKept.
type LeaseUsageHistory struct {
	LeaseID    string `json:"lease_id"`
	Generation int64  `json:"generation"`
	SandboxID  string `json:"sandbox_id"`
	// Limits are the sandbox's limits.
	Limits Resources `json:"limits"`
	// Samples are sorted oldest first. There are none for times of sleep or when the backend did not answer.
	Samples []UsageSample `json:"samples"`
}
