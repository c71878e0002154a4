package sandbox

import (
	"context"
	"time"
)

// Maintenance brings ledger and backends into agreement when somebody asks for it.
type Maintenance interface {
	// Sweep surveys every backend instance now, as a reconciler does at its pace, and reports what it
	// found. Errors: Unavailable when no instance can be reached.
	Sweep(ctx context.Context, r SweepRequest) (SweepReport, error)
}

// SweepRequest asks for a sweep.
type SweepRequest struct {
	// DryRun writes nothing and destroys nothing.
	DryRun bool `json:"dry_run,omitempty" doc:"Report only: write nothing and destroy nothing."`
}

// SweepAction is what a sweep does with something that it found or, in a dry run, would do.
type SweepAction string

// The actions.
const (
	SweepDestroy SweepAction = "destroy" // no row wants it
	SweepRecord  SweepAction = "record"  // it is drift of a living sandbox
	SweepKeep    SweepAction = "keep"    // Why says why
)

// SweepFinding is one difference between ledger and backend.
type SweepFinding struct {
	Kind          DriftKind   `json:"kind" enum:"vanished,stopped,out_of_memory,changed,orphan,leftover"`
	SandboxID     string      `json:"sandbox_id,omitempty"`
	LeaseID       string      `json:"lease_id,omitempty"`
	EnvironmentID string      `json:"environment_id,omitempty"`
	Field         string      `json:"field,omitempty"`
	Expected      string      `json:"expected,omitempty"`
	Observed      string      `json:"observed,omitempty"`
	CreatedAt     time.Time   `json:"created_at,omitzero"`
	FirstSeenAt   time.Time   `json:"first_seen_at,omitzero"`
	Action        SweepAction `json:"action" enum:"destroy,record,keep"`
	Why           string      `json:"why,omitempty"`
}

// InstanceSweep is what a sweep found on one backend instance.
type InstanceSweep struct {
	Backend  Backend        `json:"backend"`
	Instance string         `json:"instance"`
	Findings []SweepFinding `json:"findings" nullable:"false"`
	// Error says what could not be looked at or removed.
	Error string `json:"error,omitempty"`
}

// SweepReport is the answer to a SweepRequest.
type SweepReport struct {
	LedgerID  string          `json:"ledger_id"`
	DryRun    bool            `json:"dry_run"`
	Instances []InstanceSweep `json:"instances" nullable:"false"`
}
