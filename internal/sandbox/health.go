package sandbox

import (
	"context"
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

// Monitors looks at a lease's sandbox. It wakes nothing, records nothing, and is no activity.
type Monitors interface {
	// LeaseUsage samples what the sandbox uses. Errors: NotFound, LeaseEnded, Conflict (generation;
	// ReasonInvalidState while it is being made), Unavailable.
	LeaseUsage(ctx context.Context, r LeaseRef) (LeaseUsage, error)
	// LeaseHealth checks whether the sandbox can be used. What is wrong with it is an answer, not an
	// error. Errors: NotFound, Conflict (generation).
	LeaseHealth(ctx context.Context, r LeaseRef) (LeaseHealth, error)
}
