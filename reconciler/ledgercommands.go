package reconciler

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/ledger"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/state"
	"github.com/sandbox-lease/terraform-provider-sandbox/reconciler/cli"
	"github.com/sandbox-lease/terraform-provider-sandbox/reconciler/internal/printable"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// Commands returns the commands that ask no reconciler, but are one, or work on its ledger itself.
func Commands(version string) []*cobra.Command {
	return []*cobra.Command{NewServeCommand(version), NewDoctorCommand(), newMigrateCommand(), newBackupCommand(), newRestoreCommand(), newSecretCommand()}
}

// custody is what a command is given that works on a ledger itself: the settings of serve, of which it
// shows those that it uses.
type custody struct {
	serving
	output string
}

func (k *custody) addFlags(f *pflag.FlagSet, shown ...string) {
	k.serving.addFlags(f, &k.gateway)
	f.StringVarP(&k.output, "output", "o", "table", "table or json")
	f.VisitAll(func(flag *pflag.Flag) {
		flag.Hidden = !slices.Contains(append(shown, flagConfig, "ledger", "output"), flag.Name)
	})
}

// settle reads the settings as serve does. Errors: Invalid.
func (k *custody) settle(cmd *cobra.Command) error {
	if k.output != "table" && k.output != "json" {
		return sandbox.Errorf(sandbox.Invalid, "--output must be table or json, not %q", k.output)
	}
	if _, err := settle(cmd.Flags(), os.Environ()); err != nil {
		return err
	}
	return k.fillIn(false)
}

// one takes one argument.
func one(what string) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if len(args) != 1 {
			return sandbox.Errorf(sandbox.Invalid, "%s takes %s, and nothing else; see --help", cmd.CommandPath(), what)
		}
		return nil
	}
}

const settingsOfServe = `

The settings are those of serve: its flags, its environment (SANDBOX_SERVE_...) and its file (--config).`

func newMigrateCommand() *cobra.Command {
	k := &custody{}
	cmd := &cobra.Command{
		Use:   "migrate",
		Short: "Make the ledger, or bring it to this program's schema",
		Long: `Make the ledger, or bring it to this program's schema, as serve does when it starts. Back it up first: a
ledger that was brought to a new schema goes back to an older program only as far as the changelog says.` + settingsOfServe,
		Args: cobra.NoArgs, SilenceUsage: true, SilenceErrors: true,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := k.settle(cmd); err != nil {
				return err
			}
			before, err := ledger.Examine(cmd.Context(), k.LedgerURL)
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

// migration is what became of a ledger's schema; 0 is none.
type migration struct {
	Ledger string `json:"ledger_id"`
	From   int64  `json:"from_schema"`
	To     int64  `json:"to_schema"`
}

func (m migration) lines() [][]string {
	return [][]string{{"ledger", m.Ledger}, {"schema", fmt.Sprintf("%d, was %d", m.To, m.From)}}
}

func newBackupCommand() *cobra.Command {
	k := &custody{}
	cmd := &cobra.Command{
		Use:   "backup <file>",
		Short: "Copy the ledger to a new file, beside a reconciler that serves it or without",
		Long: `Copy the ledger, as it is in one moment, to a new file that only its owner may read, and check the copy from end
to end. Nobody waits for it: a reconciler goes on serving. Whatever the database, the file has one form, and can be restored to
SQLite and to PostgreSQL. An existing file is never replaced.

The file holds no secret in clear, and tokens as hashes. To restore all of it, keep with it, and apart from it:
the file of the keys that secrets are sealed under (--secret-key-file, beside an embedded ledger its name and .key), which
changes only when keys are added; and a copy of the bucket of states (--state-url) that is taken within 20 minutes after it.
Files of tokens and webhook secrets are yours.` + settingsOfServe,
		Example: `  reconciler backup --config /etc/sandbox/reconciler.yaml /var/backups/ledger-$(date +%F)`,
		Args:    one("the file to make"), SilenceUsage: true, SilenceErrors: true,
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := k.settle(cmd); err != nil {
				return err
			}
			stop := cli.Progress(cmd, "copying and checking the ledger")
			contents, err := ledger.Backup(cmd.Context(), k.LedgerURL, args[0], ledger.Options{})
			stop()
			if err != nil {
				return err
			}
			return k.print(cmd, backup{Contents: contents})
		},
	}
	k.addFlags(cmd.Flags())
	return cmd
}

func newRestoreCommand() *cobra.Command {
	k := &custody{}
	var check, incomplete, inPlace bool
	cmd := &cobra.Command{
		Use:   "restore <file> | restore --in-place",
		Short: "Make a ledger of a backup, or check one",
		Long: `Make the ledger of a backup, where there is none. First the backup is checked from end to end, and whether the keys that
its secrets are sealed under and the objects of its saved states are there: without them it is refused, unless --incomplete says
that they will come, or are lost. --check does no more than that. Stop every reconciler of the ledger first.

--in-place is for a ledger that was put back by other means: pg_restore, or a snapshot of its disk. Nothing in such a ledger
says that it is older than what runs, so that a reconciler would destroy what it does not know: run this before one serves it. It
is refused while one does, as far as that can be known, and may be repeated.

What happened since the backup was taken is not in it. When the ledger is served again:
- what lives counts as used at the restoration: no lease ends by its TTL because the backup does not know of its use;
- leases that have ended since are told as vanished;
- sandboxes that were made since are left alone, and told as drift (orphan), until "reconciler adopt" takes them in, or
  "reconciler adopt --end" destroys them. None outlives its longest life;
- what waited in a warm pool when the backup was taken is removed: a lease may have had it since;
- conditions that were received since are not known: have game servers send them again.` + settingsOfServe,
		Args: func(cmd *cobra.Command, args []string) error {
			switch {
			case !inPlace:
				return one("the file of the backup, or --in-place")(cmd, args)
			case len(args) > 0 || check || incomplete:
				return sandbox.Errorf(sandbox.Invalid, "%s --in-place takes no file, no --check and no --incomplete: the ledger is there already; see --help", cmd.CommandPath())
			}
			return nil
		},
		SilenceUsage: true, SilenceErrors: true,
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := k.settle(cmd); err != nil {
				return err
			}
			if inPlace {
				noted, err := ledger.NoteRestored(cmd.Context(), k.LedgerURL, ledger.Options{})
				if err != nil {
					return err
				}
				return k.print(cmd, restoredInPlace{noted})
			}
			stop := cli.Progress(cmd, "checking and restoring the ledger")
			b, err := k.examine(cmd.Context(), args[0])
			if err == nil && len(b.Missing) == 0 || err == nil && incomplete {
				if !check {
					_, err = ledger.Restore(cmd.Context(), args[0], k.LedgerURL, ledger.Options{})
					b.RestoredTo = ledger.RedactURL(k.LedgerURL)
				}
			}
			stop()
			if err != nil {
				return err
			}
			if len(b.Missing) > 0 && !incomplete {
				return sandbox.Errorf(sandbox.Failed, "the backup %s is not complete, and nothing was restored: %s; bring what is missing, or say --incomplete", args[0], strings.Join(b.Missing, "; "))
			}
			return k.print(cmd, b)
		},
	}
	k.addFlags(cmd.Flags(), "secret-key-file", "state-url")
	cmd.Flags().BoolVar(&check, "check", false, "check the backup, its keys and its states; restore nothing")
	cmd.Flags().BoolVar(&incomplete, "incomplete", false, "restore it though keys or states are missing")
	cmd.Flags().BoolVar(&inPlace, "in-place", false, "note that the ledger was put back by other means (pg_restore, a snapshot)")
	return cmd
}

// restoredInPlace is a ledger that knows that it was put back by other means.
type restoredInPlace struct{ ledger.Restored }

func (r restoredInPlace) lines() [][]string {
	return [][]string{{"ledger", r.LedgerID}, {"restored at", moment(r.At)}}
}

// backup is what was backed up or restored.
type backup struct {
	ledger.Contents
	// Missing says what belongs to the backup and is not there.
	Missing    []string `json:"missing,omitempty"`
	States     int      `json:"states"`
	RestoredTo string   `json:"restored_to,omitempty"`
}

// examine checks a backup, and whether what it needs is there.
func (k *custody) examine(ctx context.Context, file string) (b backup, err error) {
	if b.Contents, err = ledger.ExamineBackup(ctx, file); err != nil {
		return b, err
	}
	b.States = len(b.Objects)
	keys := k.keys()
	for _, sealed := range b.Sealed {
		if err := keys.Has(sealed); err != nil {
			b.Missing = append(b.Missing, "a key: "+err.Error())
		}
	}
	if len(b.Objects) == 0 {
		return b, nil
	}
	url := cmp.Or(k.StateURL, ledger.DefaultStateURL(k.LedgerURL))
	if url == "" {
		b.Missing = append(b.Missing, fmt.Sprintf("the bucket of %d saved states: name it with --state-url", len(b.Objects)))
		return b, nil
	}
	bucket, err := state.Open(ctx, url)
	if err != nil {
		return b, err
	}
	defer func() { err = errors.Join(err, bucket.Close()) }()
	for _, object := range b.Objects {
		there, err := bucket.Has(ctx, object)
		if err != nil {
			return b, err
		}
		if !there {
			b.Missing = append(b.Missing, "the saved state "+object+" in "+bucket.String())
		}
	}
	return b, nil
}

func (b backup) lines() [][]string {
	taken := moment(b.TakenAt)
	if b.TakenAt.IsZero() {
		taken = "unknown: it was copied by other means"
	}
	lines := [][]string{
		{"file", fmt.Sprintf("%s, %d bytes, every page and reference is good", b.File, b.Bytes)},
		{"ledger", fmt.Sprintf("%s, schema %d", b.LedgerID, b.Schema)},
		{"taken at", taken},
		{"holds", strings.Join([]string{cli.Counted(b.Environments, "environment", "environments"), cli.Counted(b.Leases, "lease", "leases"),
			cli.Counted(b.Living, "living sandbox", "living sandboxes"), cli.Counted(b.Events, "event", "events")}, ", ")},
	}
	for _, m := range b.Missing {
		lines = append(lines, []string{"missing", m})
	}
	if b.RestoredTo != "" {
		lines = append(lines, []string{"restored to", b.RestoredTo})
	}
	return lines
}

// print shows an outcome as JSON, or a line for each part of it.
func (k *custody) print(cmd *cobra.Command, v interface{ lines() [][]string }) error {
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
		fmt.Fprintln(t, strings.Join(cells, "\t")) // kept for Flush
	}
	return t.Flush()
}
