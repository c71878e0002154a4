// Package plansummary summarizes as Markdown, for the review of a pull request, how a Terraform plan changes the cost
// of sandboxes, and what has drifted.
package plansummary

import (
	"bytes"
	"io"
	"os"

	tfjson "github.com/hashicorp/terraform-json"
	"github.com/spf13/cobra"

	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// NewCommand returns the command plan-summary, which reads a plan from a file or from its standard input.
func NewCommand() *cobra.Command {
	failOnDrift := false
	cmd := &cobra.Command{
		Use:   "plan-summary [FILE]",
		Short: "Summarize the cost changes, drift and ended leases of a Terraform plan as Markdown",
		Long: "Summarize the cost changes, drift and ended leases of a Terraform plan as Markdown.\n\n" +
			"The plan is the JSON that terraform show -json writes about a saved plan. It is in FILE, or on standard input.",
		Example: "  terraform plan -out=planned\n" +
			"  terraform show -json planned | sandbox plan-summary --fail-on-drift",
		Args:          atMostOneFile,
		SilenceErrors: true,
		SilenceUsage:  true,
		RunE: func(cmd *cobra.Command, args []string) error {
			plan, err := read(cmd.InOrStdin(), args)
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

func atMostOneFile(cmd *cobra.Command, args []string) error {
	if len(args) > 1 {
		return sandbox.Errorf(sandbox.Invalid, "%s takes at most one file, not %d; see --help", cmd.CommandPath(), len(args))
	}
	return nil
}

// read decodes the plan in the file that args name, or in the input. Errors: Invalid.
func read(in io.Reader, args []string) (*tfjson.Plan, error) {
	from, next := "standard input", "pipe in the output of terraform show -json for a saved plan"
	load := func() ([]byte, error) { return io.ReadAll(in) }
	if len(args) > 0 {
		from = args[0]
		load = func() ([]byte, error) { return os.ReadFile(from) }
	}
	text, err := load()
	if err != nil {
		return nil, sandbox.Errorf(sandbox.Invalid, "read a plan from %s: %w: %s", from, err, next)
	}
	if bytes.HasPrefix(text, []byte("PK")) && len(args) > 0 { // a saved plan is a ZIP archive
		return nil, sandbox.Errorf(sandbox.Invalid, "%s is a saved plan, not its JSON: run terraform show -json %[1]s | "+
			"sandbox plan-summary", from)
	}
	plan := &tfjson.Plan{}
	plan.UseJSONNumber(true)
	if err := plan.UnmarshalJSON(text); err != nil {
		return nil, sandbox.Errorf(sandbox.Invalid, "read a plan from %s, of %d bytes: %w: %s", from, len(text), err, next)
	}
	return plan, nil
}
