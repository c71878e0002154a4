package sandbox

import "time"

// LedgerInfo identifies the ledger behind a Service.
type LedgerInfo struct {
	ID      string `json:"id"`
	Version string `json:"version"`
	// LastEventID is the id of the latest event.
	LastEventID int64 `json:"last_event_id" doc:"The latest event: follow events after it."`
	// PurgedEventID: some events up to this one are no longer retained. A reader cannot continue from before
	// it.
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
