package sandbox

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

// DriftKind is the kind of difference between the ledger and reality.
type DriftKind string

// The kinds of drift.
const (
	DriftVanished    DriftKind = "vanished"
	DriftStopped     DriftKind = "stopped"
	DriftOutOfMemory DriftKind = "out_of_memory"
	DriftChanged     DriftKind = "changed"
	DriftOrphan      DriftKind = "orphan" // has our label, but no row in the ledger
	// DriftLeftover: a volume, network or helper of ours whose sandbox or environment is gone.
	DriftLeftover DriftKind = "leftover"
	// DriftUsage: the backend counted other usage than the ledger. The ledger's costs stay as they are.
	DriftUsage DriftKind = "usage"
)

// DriftKinds lists all kinds of drift.
var DriftKinds = []DriftKind{
	DriftVanished, DriftStopped, DriftOutOfMemory, DriftChanged, DriftOrphan, DriftLeftover, DriftUsage,
}

// DriftFinding is one recorded difference between ledger and backend.
type DriftFinding struct {
	ID            int64     `json:"id"`
	Kind          DriftKind `json:"kind" enum:"vanished,stopped,out_of_memory,changed,orphan,leftover,usage"`
	SandboxID     string    `json:"sandbox_id"`
	LeaseID       string    `json:"lease_id,omitempty"`
	EnvironmentID string    `json:"environment_id,omitempty"`
	Instance      string    `json:"instance"`
	Field         string    `json:"field,omitempty"`
	Expected      string    `json:"expected,omitempty"`
	Observed      string    `json:"observed,omitempty"`
	FirstSeenAt   time.Time `json:"first_seen_at"`
	LastSeenAt    time.Time `json:"last_seen_at"`
	ResolvedAt    time.Time `json:"resolved_at,omitzero"`
	// Resolution says how it was resolved or, while it is open, what must be done and by which party.
	Resolution string `json:"resolution,omitempty"`
}

// SettingSchedulingPolicy is a deployment setting that cannot change after the environment was created.
const SettingSchedulingPolicy = "scheduling_policy"

// Kept reports a finding about a deployment that no apply resolves. Only a new environment can.
func (f DriftFinding) Kept() bool {
	return f.Kind == DriftChanged && strings.HasSuffix(f.Field, ": "+SettingSchedulingPolicy)
}

// Status returns whether the finding is open or resolved.
func (f DriftFinding) Status() DriftStatus {
	if f.ResolvedAt.IsZero() {
		return DriftOpen
	}
	return DriftResolved
}

// DriftFilter selects findings, newest first.
type DriftFilter struct {
	EnvironmentID string
	LeaseID       string
	Kind          DriftKind
	Status        DriftStatus
	Limit         int
}

// DriftStatus selects findings by whether they are resolved.
type DriftStatus string

// The statuses of findings.
const (
	DriftOpen     DriftStatus = "open"
	DriftResolved DriftStatus = "resolved"
)

// DriftStatuses lists all statuses of findings.
var DriftStatuses = []DriftStatus{DriftOpen, DriftResolved}

// Validate checks kind, status and page size. Errors: Invalid, listing the valid values.
func (f DriftFilter) Validate() error {
	var fields []Field
	if f.Kind != "" && !slices.Contains(DriftKinds, f.Kind) {
		fields = append(fields, Field{Name: "kind", Problem: fmt.Sprintf("must be one of %v", DriftKinds)})
	}
	if f.Status != "" && !slices.Contains(DriftStatuses, f.Status) {
		fields = append(fields, Field{Name: "status", Problem: fmt.Sprintf("must be one of %v", DriftStatuses)})
	}
	return InvalidFields("the drift filter", checkLimit(fields, f.Limit, MaxPage))
}
