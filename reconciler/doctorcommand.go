package reconciler

import (
	"fmt"
	"os"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/sandbox-lease/terraform-provider-sandbox/reconciler/cli"
	"github.com/sandbox-lease/terraform-provider-sandbox/reconciler/internal/printable"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// NewDoctorCommand returns the command `reconciler doctor`.
func NewDoctorCommand() *cobra.Command {
	var (
		s      serving
		output string
	)
	cmd := &cobra.Command{
		Use:   "doctor",
		Short: "Look at everything that serve would use, and say what to do",
		Long: `Look at everything that serve would use with the same flags, environment and file of settings: credentials, address, ledger, disk, the
bucket of states, clocks and engine. Nothing is made or changed, so it may run beside a reconciler that serves.

Exit codes: 0 serve would work, warnings or not; 1 there are problems.`,
		Args:          cobra.NoArgs,
		SilenceUsage:  true,
		SilenceErrors: true,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if output != "table" && output != "json" {
				return sandbox.Errorf(sandbox.Invalid, "--output must be table or json, not %q", output)
			}
			if _, err := settle(cmd.Flags(), os.Environ()); err != nil {
				return err
			}
			if err := s.complete(); err != nil {
				return err
			}
			symptoms := Examine(cmd.Context(), s.Config)
			if err := printSymptoms(cmd, output, symptoms); err != nil {
				return err
			}
			return verdictOf(symptoms)
		},
	}
	s.addFlags(cmd.Flags(), &s.gateway)
	cmd.Flags().StringVarP(&output, "output", "o", "table", "table or json")
	return cmd
}

func printSymptoms(cmd *cobra.Command, output string, symptoms []Symptom) error {
	if output == "json" {
		enc := printable.NewEncoder(cmd.OutOrStdout())
		enc.SetIndent("", "  ")
		return enc.Encode(symptoms)
	}
	t := tabwriter.NewWriter(cmd.OutOrStdout(), 0, 0, 2, ' ', 0)
	for _, s := range symptoms {
		fmt.Fprintf(t, "%s\t%s\t%s\n", strings.ToUpper(string(s.Verdict)), printable.Text(s.Subject), printable.Text(s.Found)) // kept for Flush
		if s.Advice != "" {
			fmt.Fprintf(t, "\t\t-> %s\n", printable.Text(s.Advice)) // kept for Flush
		}
	}
	return t.Flush()
}

// verdictOf is what the command ends with. Errors: Failed when there are problems.
func verdictOf(symptoms []Symptom) error {
	var bad []string
	for _, s := range symptoms {
		if s.Verdict == VerdictProblem {
			bad = append(bad, s.Subject)
		}
	}
	if len(bad) > 0 {
		return sandbox.Errorf(sandbox.Failed, "%s: %s", cli.Counted(len(bad), "problem", "problems"), strings.Join(bad, ", "))
	}
	return nil
}
