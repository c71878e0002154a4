package sandbox

import "time"

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
)

// DriftFinding is one difference between ledger and backend, kept as a record.
type DriftFinding struct {
	ID            int64     `json:"id"`
	Kind          DriftKind `json:"kind" enum:"vanished,stopped,out_of_memory,changed,orphan,leftover"`
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

// DriftFilter selects findings, newest first.
type DriftFilter struct {
	EnvironmentID string
	LeaseID       string
	// OpenOnly leaves out what is resolved.
	OpenOnly bool
	Limit    int
}

// LedgerInfo identifies the ledger behind a Service.
type LedgerInfo struct {
	ID      string `json:"id"`
	Version string `json:"version"`
	// PriceBooks are in force, by backend.
	PriceBooks map[Backend]PriceBook `json:"price_books"`
}
