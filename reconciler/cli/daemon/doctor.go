package daemon

import (
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"github.com/sandbox-lease/terraform-provider-sandbox/reconciler"
	"github.com/sandbox-lease/terraform-provider-sandbox/reconciler/cli"
	"github.com/sandbox-lease/terraform-provider-sandbox/reconciler/cli/console"
	"github.com/sandbox-lease/terraform-provider-sandbox/reconciler/internal/printable"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// minFound is the minimum width of the findings, in columns. On a narrower terminal, the terminal wraps them.
const minFound = 30

// NewDoctorCommand returns the command doctor.
func NewDoctorCommand(c cli.Config) *cobra.Command {
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
		Args:          console.Exactly(),
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
			if err := printSymptoms(cmd.OutOrStdout(), c.Columns(cmd.OutOrStdout()), output, symptoms); err != nil {
				return err
			}
			return verdictOf(symptoms)
		},
	}
	s.addFlags(cmd.Flags())
	cmd.Flags().StringVarP(&output, "output", "o", "table", "table or json")
	return cmd
}

// printSymptoms prints the findings. In a table they are wrapped to width columns, 0 for no limit.
func printSymptoms(out io.Writer, width int, output string, symptoms []reconciler.Symptom) error {
	if output == "json" {
		enc := printable.NewEncoder(out)
		enc.SetIndent("", "  ")
		return enc.Encode(symptoms)
	}
	verdicts, subjects := 0, 0
	for _, s := range symptoms {
		verdicts, subjects = max(verdicts, len(s.Verdict)), max(subjects, len(s.Subject))
	}
	indent := strings.Repeat(" ", verdicts+subjects+4)
	text := func(text string) string {
		lines := printable.Wrap(printable.Text(text), max(width-len(indent), min(width, minFound)))
		return strings.ReplaceAll(lines, "\n", "\n"+indent)
	}
	var b strings.Builder
	for _, s := range symptoms {
		fmt.Fprintf(&b, "%-*s  %-*s  %s\n", verdicts, strings.ToUpper(string(s.Verdict)), subjects, s.Subject, text(s.Found))
		if s.Advice != "" {
			fmt.Fprintf(&b, "%s%s\n", indent, text("-> "+s.Advice))
		}
	}
	_, err := io.WriteString(out, b.String())
	return err
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
