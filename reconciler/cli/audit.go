package cli

import (
	"github.com/spf13/cobra"

	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

func (a *app) audit() *cobra.Command {
	var (
		r   sandbox.AuditRequest
		all bool
	)
	cmd := &cobra.Command{
		Use:   "audit",
		Short: "Hold every sandbox and gateway against the rules of confinement, as it is now",
		Long: `Hold every sandbox on its backend, and every gateway that sandboxes go out through, against the rules of
confinement, as they are now and not as they were asked for. The rules numbered 4.x and 5.x are those of the CIS Docker Benchmark that concern a single
container; the others are our own. What keeps them all is one line; with --all, each rule is.

Exit codes: 0 every rule is kept; 1 something breaks a rule, or an instance could not be audited.`,
		Args: exactly(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			service, err := a.connect(cmd)
			if err != nil {
				return err
			}
			stop := Progress(cmd, "holding sandboxes against the rules")
			report, err := service.Audit(cmd.Context(), r)
			stop()
			if err != nil {
				return err
			}
			if err := a.print(cmd, report, func(t *table) { fillAudit(t, report, all) }); err != nil {
				return err
			}
			return auditError(report)
		},
	}
	cmd.Flags().StringVar(&r.EnvironmentID, "environment", "", "only of this environment")
	cmd.Flags().BoolVar(&all, "all", false, "show every rule of every sandbox and gateway")
	return cmd
}

// auditError is what an audit ends with: nil when every rule is kept everywhere.
func auditError(report sandbox.AuditReport) error {
	for _, i := range report.Instances {
		if i.Error != "" {
			return sandbox.Errorf(sandbox.Failed, "audit of %s instance %s: %s", i.Backend, i.Instance, i.Error)
		}
	}
	if n := report.Findings(); n > 0 {
		return sandbox.Errorf(sandbox.Failed, "%s: end the leases of these sandboxes, remove these gateways (they are made anew), and find out who changed them", Counted(n, "finding", "findings"))
	}
	return nil
}

func fillAudit(t *table, report sandbox.AuditReport, all bool) {
	t.row("RESULT", "RULE", "TITLE", "ENVIRONMENT", "LEASE", "SANDBOX", "OBJECT", "DETAIL")
	for _, i := range report.Instances {
		for _, group := range byObject(i.Checks) {
			if !all && findingsOf(group) == 0 {
				c := group[0]
				t.row("PASS", "all", summary(group), c.EnvironmentID, c.LeaseID, c.SandboxID, c.Object, "")
				continue
			}
			for _, c := range group {
				if all || c.Verdict == sandbox.VerdictFinding {
					t.row(result(c.Verdict), c.Rule, c.Title, c.EnvironmentID, c.LeaseID, c.SandboxID, c.Object, c.Detail)
				}
			}
		}
	}
}

// byObject cuts a list of checks where the object changes.
func byObject(checks []sandbox.AuditCheck) (groups [][]sandbox.AuditCheck) {
	for begin, i := 0, 1; begin < len(checks); i++ {
		if i == len(checks) || checks[i].Object != checks[begin].Object {
			groups = append(groups, checks[begin:i])
			begin = i
		}
	}
	return groups
}

func findingsOf(checks []sandbox.AuditCheck) (n int) {
	for _, c := range checks {
		if c.Verdict == sandbox.VerdictFinding {
			n++
		}
	}
	return n
}

// summary counts the rules that were kept, and those that the backend has nothing for.
func summary(checks []sandbox.AuditCheck) string {
	skipped := 0
	for _, c := range checks {
		if c.Verdict == sandbox.VerdictInapplicable {
			skipped++
		}
	}
	text := Counted(len(checks)-skipped, "rule is kept", "rules are kept")
	if skipped > 0 {
		text += ", " + Counted(skipped, "does not apply", "do not apply")
	}
	return text
}

func result(v sandbox.Verdict) string {
	switch v {
	case sandbox.VerdictPass:
		return "PASS"
	case sandbox.VerdictFinding:
		return "FINDING"
	default:
		return "N/A"
	}
}
