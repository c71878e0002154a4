package daemon

import (
	"fmt"
	"os"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/sandbox-lease/terraform-provider-sandbox/reconciler"
	"github.com/sandbox-lease/terraform-provider-sandbox/reconciler/internal/printable"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// NewDoctorCommand returns the command doctor.
func NewDoctorCommand() *cobra.Command {
	var (
		s      settings
		output string
	)
	cmd := &cobra.Command{
		Use:   "doctor",
		Short: "Check everything that serve needs, and print what to fix",
		Long: `Check everything that serve would use with the same flags, environment and settings file: credentials,
address, ledger, disk, the bucket of snapshots, clocks and engine. doctor changes nothing, so it can run
while serve does.

Exit codes: 0 no problem, maybe warnings; 1 problems.`,
		Args:          cobra.NoArgs,
		SilenceUsage:  true,
		SilenceErrors: true,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if output != "table" && output != "json" {
				return sandbox.Errorf(sandbox.Invalid, "--output must be table or json, not %q", output)
			}
			if _, err := resolveSettings(cmd.Flags(), os.Environ()); err != nil {
				return err
			}
			if err := s.complete(false); err != nil {
				return err
			}
			symptoms := reconciler.Examine(cmd.Context(), s.Config)
			if err := printSymptoms(cmd, output, symptoms); err != nil {
				return err
			}
			return verdictOf(symptoms)
		},
	}
	s.addFlags(cmd.Flags())
	cmd.Flags().StringVarP(&output, "output", "o", "table", "table or json")
	return cmd
}

func printSymptoms(cmd *cobra.Command, output string, symptoms []reconciler.Symptom) error {
	if output == "json" {
		enc := printable.NewEncoder(cmd.OutOrStdout())
		enc.SetIndent("", "  ")
		return enc.Encode(symptoms)
	}
	t := tabwriter.NewWriter(cmd.OutOrStdout(), 0, 0, 2, ' ', 0)
	for _, s := range symptoms {
		// Flush returns the error.
		fmt.Fprintf(t, "%s\t%s\t%s\n", strings.ToUpper(string(s.Verdict)), printable.Text(s.Subject), printable.Text(s.Found))
		if s.Advice != "" {
			fmt.Fprintf(t, "\t\t-> %s\n", printable.Text(s.Advice))
		}
	}
	return t.Flush()
}

// verdictOf returns Failed if there are problems.
func verdictOf(symptoms []reconciler.Symptom) error {
	var bad []string
	for _, s := range symptoms {
		if s.Verdict == reconciler.VerdictProblem {
			bad = append(bad, s.Subject)
		}
	}
	if len(bad) > 0 {
		return sandbox.Errorf(sandbox.Failed, "%s: %s",
			printable.Count(len(bad), "problem", "problems"), strings.Join(bad, ", "))
	}
	return nil
}
