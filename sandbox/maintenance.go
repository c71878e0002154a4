package sandbox

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

// LedgerInfo identifies the ledger behind a Service.
type LedgerInfo struct {
	ID      string `json:"id"`
	Version string `json:"version"`
	// LastEventID is the id of the latest event.
	LastEventID int64 `json:"last_event_id" doc:"The latest event: follow events after it."`
	// PurgedEventID: some events up to this one are no longer retained. A reader must not continue from an earlier one.
	PurgedEventID int64 `json:"purged_event_id,omitempty" doc:"Events up to this one are not all retained: a reader cannot continue from before it."`
	// DetailSince is the start of the retained single usage periods. Older usage is kept by UTC day.
	DetailSince time.Time `json:"detail_since,omitzero" doc:"Costs before this moment are kept by UTC day."`
	// PriceBooks are the current ones, by backend.
	PriceBooks map[Backend]PriceBook `json:"price_books"`
}

// SweepRequest asks for a sweep: a comparison of the ledger with the backends.
type SweepRequest struct {
	// DryRun changes nothing and destroys nothing.
	DryRun bool `json:"dry_run,omitempty" doc:"Report only: change nothing and destroy nothing."`
}

// SweepAction is what a sweep does with a finding or, in a dry run, would do.
type SweepAction string

// The actions.
const (
	SweepDestroy SweepAction = "destroy" // an orphan: no row of the ledger wants it
	SweepRecord  SweepAction = "record"  // drift of a live sandbox
	SweepKeep    SweepAction = "keep"    // left as it is; Why says why
)

// SweepFinding is one difference between ledger and backend.
type SweepFinding struct {
	Kind          DriftKind   `json:"kind" enum:"vanished,stopped,out_of_memory,changed,orphan,leftover,usage"`
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
	// Error says what the sweep could not inspect or remove.
	Error string `json:"error,omitempty"`
}

// SweepReport is the answer to a SweepRequest.
type SweepReport struct {
	LedgerID  string          `json:"ledger_id"`
	DryRun    bool            `json:"dry_run"`
	Instances []InstanceSweep `json:"instances" nullable:"false"`
}

// AdoptRequest takes over the sandboxes that backends hold under a ledger's label.
type AdoptRequest struct {
	// LedgerID is the label: this ledger's own after it was emptied or restored, or that of a lost ledger. Two
	// live ledgers must never own the same sandbox.
	LedgerID string `json:"ledger_id,omitempty" doc:"The lost ledger that created the sandboxes. Default: this ledger."`
	// EnvironmentID limits the adoption to one environment. Empty means all.
	EnvironmentID string `json:"environment_id,omitempty"`
	// End ends the adopted leases at once, so that the service destroys their sandboxes.
	End bool `json:"end,omitempty" doc:"End the adopted leases at once."`
	// DryRun changes nothing.
	DryRun bool `json:"dry_run,omitempty" doc:"Report only."`
}

// Validate checks a request. Errors: Invalid.
func (r AdoptRequest) Validate() error {
	if r.LedgerID == "" || len(r.LedgerID) == LedgerIDLength {
		return nil
	}
	return InvalidFields("adopt",
		[]Field{{Name: "ledger_id", Problem: "must be a ledger id, which is a label of its sandboxes"}})
}

// Adoption is the result for one sandbox that was found.
type Adoption struct {
	SandboxID     string    `json:"sandbox_id"`
	LeaseID       string    `json:"lease_id,omitempty"`
	EnvironmentID string    `json:"environment_id"`
	Generation    int64     `json:"generation"`
	Backend       Backend   `json:"backend"`
	Instance      string    `json:"instance"`
	State         State     `json:"state"`
	CreatedAt     time.Time `json:"created_at,omitzero"`
	// Deadline is when the sandbox ends itself. It was set when the sandbox was created.
	Deadline time.Time `json:"deadline,omitzero"`
	Adopted  bool      `json:"adopted"`
	// Why says why it was not adopted and what to do.
	Why string `json:"why,omitempty"`
}

// AdoptReport is the answer to an AdoptRequest. It omits sandboxes that this ledger already has.
type AdoptReport struct {
	LedgerID  string     `json:"ledger_id"`
	DryRun    bool       `json:"dry_run"`
	Sandboxes []Adoption `json:"sandboxes" nullable:"false"`
}

// Verdict is the result of one audit rule.
type Verdict string

// The verdicts.
const (
	VerdictPass    Verdict = "pass"
	VerdictFinding Verdict = "finding"
	// VerdictInapplicable: the rule does not apply to the backend.
	VerdictInapplicable Verdict = "inapplicable"
)

// AuditCheck is the result of one rule for one object on a backend.
type AuditCheck struct {
	// Object is the backend's name of the inspected object. SandboxID is empty if it is not a sandbox.
	Object        string `json:"object"`
	SandboxID     string `json:"sandbox_id,omitempty"`
	LeaseID       string `json:"lease_id,omitempty"`
	EnvironmentID string `json:"environment_id,omitempty"`
	// Rule is the rule's number. 4.x and 5.x are rules of the CIS Docker Benchmark 1.6; the others are ours.
	Rule    string  `json:"rule"`
	Title   string  `json:"title"`
	Verdict Verdict `json:"verdict" enum:"pass,finding,inapplicable"`
	// Detail says what the check found, or why the rule does not apply.
	Detail string `json:"detail,omitempty"`
}

// AuditRequest asks for an audit.
type AuditRequest struct {
	// EnvironmentID limits the audit to one environment. Empty means all.
	EnvironmentID string `json:"environment_id,omitempty"`
}

// InstanceAudit is what an audit found on one backend instance.
type InstanceAudit struct {
	Backend  Backend      `json:"backend"`
	Instance string       `json:"instance,omitempty"`
	Checks   []AuditCheck `json:"checks" nullable:"false"`
	// Error says why the audit of the instance failed or is incomplete.
	Error string `json:"error,omitempty"`
}

// AuditReport is the answer to an AuditRequest.
type AuditReport struct {
	LedgerID  string          `json:"ledger_id"`
	Instances []InstanceAudit `json:"instances" nullable:"false"`
}

// Findings counts the checks with VerdictFinding.
func (r AuditReport) Findings() (n int) {
	for _, i := range r.Instances {
		for _, c := range i.Checks {
			if c.Verdict == VerdictFinding {
				n++
			}
		}
	}
	return n
}

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
	// Resolution says how it was resolved or, while it is open, what to do and who does it.
	Resolution string `json:"resolution,omitempty"`
}

// SettingSchedulingPolicy is a deployment setting that cannot change after the environment was created.
const SettingSchedulingPolicy = "scheduling_policy"

// Kept reports whether the finding is about a deployment and no apply resolves it. Then only a new environment does.
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
