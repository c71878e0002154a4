// Package plansummary summarizes as Markdown, for the review of a pull request, how a Terraform plan changes the cost
// of sandboxes, and what has drifted.
package plansummary

import (
	"io"

	tfjson "github.com/hashicorp/terraform-json"
	"github.com/spf13/cobra"

	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// NewCommand returns the command plan-summary, which reads a plan from its standard input.
func NewCommand() *cobra.Command {
	failOnDrift := false
	cmd := &cobra.Command{
		Use:   "plan-summary",
		Short: "Summarize the cost changes, drift and ended leases of a Terraform plan as Markdown",
		Example: "  terraform plan -out=planned\n" +
			"  terraform show -json planned | sandbox plan-summary --fail-on-drift",
		Args:          cobra.NoArgs,
		SilenceErrors: true,
		SilenceUsage:  true,
		RunE: func(cmd *cobra.Command, _ []string) error {
			plan, err := read(cmd.InOrStdin())
			if err != nil {
				return err
			}
			s := summarize(plan)
			if _, err := io.WriteString(cmd.OutOrStdout(), s.String()); err != nil {
				return err
			}
			if failOnDrift && s.drifted() {
				return sandbox.Errorf(sandbox.Failed, "the plan has drift or open findings: see the summary")
			}
			return nil
		},
	}
	cmd.Flags().BoolVar(&failOnDrift, "fail-on-drift", false,
		"exit with 1 if the plan has drift, or an open finding that a sandbox_drift has read")
	return cmd
}

// read decodes a plan. Errors: Invalid.
func read(in io.Reader) (*tfjson.Plan, error) {
	const next = "pipe in the output of terraform show -json for a saved plan"
	text, err := io.ReadAll(in)
	if err != nil {
		return nil, sandbox.Errorf(sandbox.Invalid, "read a plan from standard input: %w: %s", err, next)
	}
	plan := &tfjson.Plan{}
	plan.UseJSONNumber(true)
	if err := plan.UnmarshalJSON(text); err != nil {
		return nil, sandbox.Errorf(sandbox.Invalid, "read a plan from standard input, of %d bytes: %w: %s",
			len(text), err, next)
	}
	return plan, nil
}
