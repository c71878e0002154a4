package fake

import (
	"context"
	"slices"
	"strings"

	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// auditRule is the only rule of the fake backend.
const auditRule, auditTitle = "F.1", "nothing was weakened"

// Audit implements driver.Auditor. A sandbox passes unless Weaken was called for it.
func (x *Executor) Audit(ctx context.Context, ledgerID string) ([]sandbox.AuditCheck, error) {
	if err := x.enter(ctx, OpAudit, ""); err != nil {
		return nil, err
	}
	defer x.mu.Unlock()
	var checks []sandbox.AuditCheck
	for _, b := range x.containers {
		if b.spec.LedgerID != ledgerID {
			continue
		}
		c := sandbox.AuditCheck{
			Object: b.spec.SandboxID, SandboxID: b.spec.SandboxID, LeaseID: b.spec.LeaseID, EnvironmentID: b.spec.EnvironmentID,
			Rule: auditRule, Title: auditTitle, Verdict: sandbox.VerdictPass,
		}
		if b.weakened != "" {
			c.Verdict, c.Detail = sandbox.VerdictFinding, b.weakened
		}
		checks = append(checks, c)
	}
	slices.SortFunc(checks, func(a, b sandbox.AuditCheck) int { return strings.Compare(a.SandboxID, b.SandboxID) })
	return checks, nil
}

// Weaken makes a sandbox break the backend's rule with the given finding.
func (x *Executor) Weaken(sandboxID, finding string) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if b, ok := x.containers[sandboxID]; ok {
		b.weakened = finding
	}
}
