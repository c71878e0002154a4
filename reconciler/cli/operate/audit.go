package operate

import (
	"github.com/spf13/cobra"

	"github.com/sandbox-lease/terraform-provider-sandbox/reconciler/cli/console"
	"github.com/sandbox-lease/terraform-provider-sandbox/reconciler/cli/flags"
	"github.com/sandbox-lease/terraform-provider-sandbox/reconciler/cli/format"
	"github.com/sandbox-lease/terraform-provider-sandbox/reconciler/cli/table"
	"github.com/sandbox-lease/terraform-provider-sandbox/reconciler/internal/printable"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

func audit(c *console.Console) *cobra.Command {
	var (
		r   sandbox.AuditRequest
		all bool
	)
	cmd := &cobra.Command{
		Use:   "audit",
		Short: "Check every sandbox and gateway against the confinement rules",
		Long: `Check every sandbox and every egress gateway against the confinement rules. The check inspects the
running sandbox on its backend, not the settings it was created with. Rules 4.x and 5.x are the rules
of the CIS Docker Benchmark for a single container. The others are our own. A sandbox that passes all
rules takes one line. --all shows every rule.

Exit codes: 0 all rules pass; 1 a rule fails, or an instance could not be audited.`,
		Args: console.Exactly(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			service, err := c.Connect(cmd)
			if err != nil {
				return err
			}
			report, err := service.Audit(cmd.Context(), r)
			if err != nil {
				return err
			}
			if err := c.Print(cmd, report, func(t *table.Table) { fillAudit(t, report, all) }); err != nil {
				return err
			}
			return auditError(report)
		},
	}
	flags.Filter(cmd.Flags(), &r.EnvironmentID, "environment", "audit only this environment")
	cmd.Flags().BoolVar(&all, "all", false, "show every rule for every sandbox and gateway")
	return cmd
}

// auditError returns nil when every rule passes everywhere.
func auditError(report sandbox.AuditReport) error {
	for _, i := range report.Instances {
		if i.Error != "" {
			return sandbox.Errorf(sandbox.Failed, "audit of %s instance %s: %s", i.Backend, i.Instance, i.Error)
		}
	}
	if n := report.Findings(); n > 0 {
		return sandbox.Errorf(sandbox.Failed, "%s: find out who changed these sandboxes and gateways; "+
			"release the leases of the sandboxes, and remove the gateways, which are recreated",
			printable.Count(n, "finding", "findings"))
	}
	return nil
}

func fillAudit(t *table.Table, report sandbox.AuditReport, all bool) {
	t.Head(table.Flex("OBJECT"), table.Col("RESULT"), table.Col("RULE"), table.Flex("TITLE"), table.Wide("ENVIRONMENT"),
		table.Lease(), table.Wide("SANDBOX"), table.Flex("DETAIL"))
	t.None("No sandboxes and gateways to audit.")
	for _, i := range report.Instances {
		for _, group := range byObject(i.Checks) {
			if !all && findingsOf(group) == 0 {
				c := group[0]
				t.Row(c.Object, "PASS", "all", summary(group), c.EnvironmentID, c.LeaseID, c.SandboxID, "")
				continue
			}
			for _, c := range group {
				if all || c.Verdict == sandbox.VerdictFinding {
					t.Row(c.Object, format.Verdict(c.Verdict), c.Rule, c.Title, c.EnvironmentID, c.LeaseID, c.SandboxID, c.Detail)
				}
			}
		}
	}
}

// byObject groups consecutive checks of one object.
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

// summary counts the rules that pass and the rules that do not apply to the backend.
func summary(checks []sandbox.AuditCheck) string {
	skipped := 0
	for _, c := range checks {
		if c.Verdict == sandbox.VerdictInapplicable {
			skipped++
		}
	}
	text := printable.Count(len(checks)-skipped, "rule passes", "rules pass")
	if skipped > 0 {
		text += ", " + printable.Count(skipped, "does not apply", "do not apply")
	}
	return text
}
