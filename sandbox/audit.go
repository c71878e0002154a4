package sandbox

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
