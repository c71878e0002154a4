package sandbox

// Verdict is what an audit says of one rule.
type Verdict string

// The verdicts.
const (
	VerdictPass    Verdict = "pass"
	VerdictFinding Verdict = "finding"
	// VerdictInapplicable: the backend has nothing that the rule could be about.
	VerdictInapplicable Verdict = "inapplicable"
)

// AuditCheck is one rule, held against one object on a backend.
type AuditCheck struct {
	// Object is how the backend knows what was inspected; SandboxID is empty where it is no sandbox.
	Object        string `json:"object"`
	SandboxID     string `json:"sandbox_id,omitempty"`
	LeaseID       string `json:"lease_id,omitempty"`
	EnvironmentID string `json:"environment_id,omitempty"`
	// Rule is the rule's number: 4.x and 5.x are those of the CIS Docker Benchmark 1.6, the others ours.
	Rule    string  `json:"rule"`
	Title   string  `json:"title"`
	Verdict Verdict `json:"verdict" enum:"pass,finding,inapplicable"`
	// Detail says what was found, or why the rule does not apply.
	Detail string `json:"detail,omitempty"`
}

// AuditRequest asks for an audit.
type AuditRequest struct {
	// EnvironmentID, unless empty, leaves out what is of other environments.
	EnvironmentID string `json:"environment_id,omitempty"`
}

// InstanceAudit is what an audit found on one backend instance.
type InstanceAudit struct {
	Backend  Backend      `json:"backend"`
	Instance string       `json:"instance,omitempty"`
	Checks   []AuditCheck `json:"checks" nullable:"false"`
	// Error says why the instance could not be audited, or not wholly.
	Error string `json:"error,omitempty"`
}

// AuditReport is the answer to an AuditRequest.
type AuditReport struct {
	LedgerID  string          `json:"ledger_id"`
	Instances []InstanceAudit `json:"instances" nullable:"false"`
}

// Findings counts the rules that something breaks.
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
