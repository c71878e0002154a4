package daemon

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/ledger"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/ledger/storage"
	"github.com/sandbox-lease/terraform-provider-sandbox/reconciler/cli"
	"github.com/sandbox-lease/terraform-provider-sandbox/reconciler/cli/console"
	"github.com/sandbox-lease/terraform-provider-sandbox/reconciler/internal/printable"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// Commands returns the commands that need no running reconciler. They use the version and the width of the
// configuration.
func Commands(c cli.Config) []*cobra.Command {
	commands := []*cobra.Command{
		NewServeCommand(c), NewDoctorCommand(c), newMigrateCommand(), newBackupCommand(c.Version), newRestoreCommand(),
		newSecretCommand(),
	}
	for _, command := range commands {
		command.GroupID = cli.GroupReconciler
	}
	return commands
}

// directCommand holds the flags of a command that works on the ledger or the files of serve directly. It accepts all
// settings of serve.
type directCommand struct {
	settings
	output string
}

// addFlags adds the settings of serve. Help lists only the common ones and those in shown.
func (k *directCommand) addFlags(f *pflag.FlagSet, shown ...string) {
	k.settings.addFlags(f)
	f.StringVarP(&k.output, "output", "o", "table", "table or json")
	f.VisitAll(func(flag *pflag.Flag) {
		flag.Hidden = !slices.Contains(append(shown, flagConfig, "ledger", "output"), flag.Name)
	})
}

// resolve reads the settings as serve does. Errors: Invalid.
func (k *directCommand) resolve(cmd *cobra.Command) error {
	if k.output != "table" && k.output != "json" {
		return sandbox.Errorf(sandbox.Invalid, "--output must be table or json, not %q", k.output)
	}
	if _, err := resolveSettings(cmd.Flags(), os.Environ()); err != nil {
		return err
	}
	return k.fillIn(false)
}

// one accepts exactly one argument.
func one(what string) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if len(args) != 1 {
			return sandbox.Errorf(sandbox.Invalid, "%s takes one argument, %s; see --help", cmd.CommandPath(), what)
		}
		return nil
	}
}

const settingsOfServe = `

The command reads the settings of serve: its flags, its environment (SANDBOX_SERVE_...) and its file
(--config).`

func newMigrateCommand() *cobra.Command {
	k := &directCommand{}
	cmd := &cobra.Command{
		Use:   "migrate",
		Short: "Create the ledger, or migrate it to this program's schema",
		Long: `Create the ledger, or migrate it to this program's schema, as serve does at its start. Back it up first:
older programs cannot always use a migrated ledger. The changelog says which can.` +
			settingsOfServe,
		Args: console.Exactly(), SilenceUsage: true, SilenceErrors: true,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := k.resolve(cmd); err != nil {
				return err
			}
			before, err := storage.Examine(cmd.Context(), k.LedgerURL)
			if err != nil {
				return err
			}
			store, err := ledger.Open(cmd.Context(), k.LedgerURL, ledger.Options{})
			if err != nil {
				return err
			}
			if err := store.Close(); err != nil {
				return err
			}
			return k.print(cmd, migration{Ledger: store.ID(), From: before.Schema, To: max(before.Schema, before.Known)})
		},
	}
	k.addFlags(cmd.Flags())
	return cmd
}

// migration is the result of migrate. Schema 0 means that there was no ledger.
type migration struct {
	Ledger string `json:"ledger_id"`
	From   int64  `json:"from_schema"`
	To     int64  `json:"to_schema"`
}

func (m migration) lines() [][]string {
	return [][]string{{"ledger", m.Ledger}, {"schema", fmt.Sprintf("%d, was %d", m.To, m.From)}}
}

// print prints a result as JSON or as lines.
func (k *directCommand) print(cmd *cobra.Command, v interface{ lines() [][]string }) error {
	if k.output == "json" {
		enc := printable.NewEncoder(cmd.OutOrStdout())
		enc.SetIndent("", "  ")
		return enc.Encode(v)
	}
	t := tabwriter.NewWriter(cmd.OutOrStdout(), 0, 0, 2, ' ', 0)
	for _, cells := range v.lines() {
		for i := range cells {
			cells[i] = printable.Text(cells[i])
		}
		fmt.Fprintln(t, strings.Join(cells, "\t")) // Flush returns the error
	}
	return t.Flush()
}
