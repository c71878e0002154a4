package sandbox

import (
	"fmt"
	"slices"
	"time"
)

// DriftKind says how the world differs from the ledger.
type DriftKind string

// The kinds of drift.
const (
	DriftVanished    DriftKind = "vanished"
	DriftStopped     DriftKind = "stopped"
	DriftOutOfMemory DriftKind = "out_of_memory"
	DriftChanged     DriftKind = "changed"
	DriftOrphan      DriftKind = "orphan" // labelled as ours, known to no row
	// DriftLeftover: a volume, network or helper of ours whose sandbox or environment is gone.
	DriftLeftover DriftKind = "leftover"
	// DriftUsage: the backend has counted another usage than the ledger, whose costs stay as they are.
	DriftUsage DriftKind = "usage"
)

// DriftKinds are all kinds of drift.
var DriftKinds = []DriftKind{DriftVanished, DriftStopped, DriftOutOfMemory, DriftChanged, DriftOrphan, DriftLeftover, DriftUsage}

// DriftFinding is one difference between ledger and backend, kept as a record.
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
	// Resolution says how it was resolved or, while it is open, who has to do what.
	Resolution string `json:"resolution,omitempty"`
}

// Status says whether the finding is resolved.
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

// DriftStatuses are all statuses of findings.
var DriftStatuses = []DriftStatus{DriftOpen, DriftResolved}

// Validate checks kind and status. Errors: Invalid, naming what there is.
func (f DriftFilter) Validate() error {
	var fields []Field
	if f.Kind != "" && !slices.Contains(DriftKinds, f.Kind) {
		fields = append(fields, Field{Name: "kind", Problem: fmt.Sprintf("must be one of %v", DriftKinds)})
	}
	if f.Status != "" && !slices.Contains(DriftStatuses, f.Status) {
		fields = append(fields, Field{Name: "status", Problem: fmt.Sprintf("must be one of %v", DriftStatuses)})
	}
	return InvalidFields("the filter of drift", fields)
}

// LedgerInfo identifies the ledger behind a Service.
type LedgerInfo struct {
	ID      string `json:"id"`
	Version string `json:"version"`
	// LastEventID is the id of the latest event.
	LastEventID int64 `json:"last_event_id" doc:"The latest event: follow after it what happens from now on."`
	// PurgedEventID: events up to it are not all retained any more; no reader can continue from before it.
	PurgedEventID int64 `json:"purged_event_id,omitempty" doc:"Following cannot go on from before this event: not all are retained."`
	// DetailSince is since when single usage periods are retained; of what was before there are UTC days.
	DetailSince time.Time `json:"detail_since,omitzero" doc:"Costs before this moment are kept by UTC day."`
	// PriceBooks are in force, by backend.
	PriceBooks map[Backend]PriceBook `json:"price_books"`
}
