package daemon

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
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/snapshotstore"
	"github.com/sandbox-lease/terraform-provider-sandbox/reconciler/cli"
	"github.com/sandbox-lease/terraform-provider-sandbox/reconciler/internal/printable"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// Commands returns the commands that need no running reconciler.
func Commands(version string) []*cobra.Command {
	commands := []*cobra.Command{
		NewServeCommand(version), NewDoctorCommand(), newMigrateCommand(), newBackupCommand(), newRestoreCommand(),
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
		Args: cobra.NoArgs, SilenceUsage: true, SilenceErrors: true,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := k.resolve(cmd); err != nil {
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

// migration is the result of migrate. Schema 0 means that there was no ledger.
type migration struct {
	Ledger string `json:"ledger_id"`
	From   int64  `json:"from_schema"`
	To     int64  `json:"to_schema"`
}

func (m migration) lines() [][]string {
	return [][]string{{"ledger", m.Ledger}, {"schema", fmt.Sprintf("%d, was %d", m.To, m.From)}}
}

func newBackupCommand() *cobra.Command {
	k := &directCommand{}
	cmd := &cobra.Command{
		Use:   "backup <file>",
		Short: "Back up the ledger to a new file, also while serve runs",
		Long: `Copy a consistent state of the ledger to a new file that only its owner may read, and verify the whole
copy. The backup does not block a running reconciler. The format is the same for all databases: you can
restore the file to SQLite and to PostgreSQL. The command never replaces an existing file.

The file holds secrets only encrypted, and tokens only as hashes. A complete restore also needs:
- the key file of the secrets (--secret-key-file; for a SQLite ledger its name with .key). It
  changes only when you add keys. Store it apart from the backup;
- a copy of the bucket of snapshots (--state-url), taken within 20 minutes after the backup.
Back up the files of tokens and webhook secrets yourself.` + settingsOfServe,
		Example: `  sandbox backup --config /etc/sandbox/reconciler.yaml /var/backups/ledger-$(date +%F)`,
		Args:    one("the file to create"), SilenceUsage: true, SilenceErrors: true,
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := k.resolve(cmd); err != nil {
				return err
			}
			stop := cli.Progress(cmd, "backing up the ledger")
			contents, err := ledger.Backup(cmd.Context(), k.LedgerURL, args[0], ledger.Options{})
			stop()
			if err != nil {
				return err
			}
			return k.print(cmd, backup{BackupInfo: contents})
		},
	}
	k.addFlags(cmd.Flags())
	return cmd
}

func newRestoreCommand() *cobra.Command {
	k := &directCommand{}
	var check, incomplete, inPlace bool
	cmd := &cobra.Command{
		Use:   "restore <file> | restore --in-place",
		Short: "Restore the ledger from a backup, or check a backup",
		Long: `Create the ledger from a backup. The ledger must not exist yet. Stop every reconciler of the ledger first.
The command first verifies the whole backup, and looks for the keys of its secrets and for its snapshots.
If some are missing, it fails. --incomplete restores anyway. --check only verifies.

--in-place is for a ledger that you restored by other means, such as pg_restore or a disk snapshot. Run
it before serve: a reconciler cannot see that such a ledger is older than the running sandboxes, and
would destroy the unknown ones. The command fails if it detects a running reconciler. You can repeat it.

The backup does not know what happened after it was taken. When serve runs again:
- each live lease counts as used at the time of the restore, so no TTL expires too early;
- leases that ended since the backup are reported as vanished;
- unknown sandboxes keep running and are reported as drift (orphan), at most until their maximum
  lifetime. "sandbox adopt" adopts them, and "sandbox adopt --end" destroys them;
- the sandboxes of warm pools are destroyed, because a lease may have used them since the backup;
- conditions received since the backup are lost: let the game servers send them again.` + settingsOfServe,
		Args: func(cmd *cobra.Command, args []string) error {
			switch {
			case !inPlace:
				return one("the file of the backup, or --in-place")(cmd, args)
			case len(args) > 0 || check || incomplete:
				return sandbox.Errorf(sandbox.Invalid,
					"%s --in-place takes no file, no --check and no --incomplete; see --help",
					cmd.CommandPath())
			}
			return nil
		},
		SilenceUsage: true, SilenceErrors: true,
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := k.resolve(cmd); err != nil {
				return err
			}
			if inPlace {
				noted, err := ledger.NoteRestored(cmd.Context(), k.LedgerURL, ledger.Options{})
				if err != nil {
					return err
				}
				return k.print(cmd, restoredInPlace{noted})
			}
			stop := cli.Progress(cmd, "restoring the ledger")
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
				return sandbox.Errorf(sandbox.Failed, "restoring %s: nothing was restored, because the backup is incomplete: %s; "+
					"provide the missing parts, or use --incomplete", args[0], strings.Join(b.Missing, "; "))
			}
			return k.print(cmd, b)
		},
	}
	k.addFlags(cmd.Flags(), "secret-key-file", "state-url")
	cmd.Flags().BoolVar(&check, "check", false, "check the backup, its keys and its snapshots without restoring")
	cmd.Flags().BoolVar(&incomplete, "incomplete", false, "restore even if keys or snapshots are missing")
	cmd.Flags().BoolVar(&inPlace, "in-place", false,
		"record that the ledger was restored by other means (pg_restore, a disk snapshot)")
	return cmd
}

// restoredInPlace is the result of restore --in-place.
type restoredInPlace struct{ ledger.Restored }

func (r restoredInPlace) lines() [][]string {
	return [][]string{{"ledger", r.LedgerID}, {"restored at", moment(r.At)}}
}

// backup is the result of backup and restore.
type backup struct {
	ledger.BackupInfo
	// Missing lists the keys and snapshots that the backup needs and that were not found.
	Missing    []string `json:"missing,omitempty"`
	States     int      `json:"states"`
	RestoredTo string   `json:"restored_to,omitempty"`
}

// examine checks a backup, and looks for its keys and its snapshots.
func (k *directCommand) examine(ctx context.Context, file string) (b backup, err error) {
	if b.BackupInfo, err = ledger.ExamineBackup(ctx, file); err != nil {
		return b, err
	}
	b.States = len(b.Objects)
	keys := k.Keys()
	for _, sealed := range b.Sealed {
		if err := keys.Has(sealed); err != nil {
			b.Missing = append(b.Missing, "a key: "+err.Error())
		}
	}
	if len(b.Objects) == 0 {
		return b, nil
	}
	url := cmp.Or(k.SnapshotURL, ledger.DefaultSnapshotURL(k.LedgerURL))
	if url == "" {
		b.Missing = append(b.Missing, fmt.Sprintf("the bucket of %d snapshots: set --state-url", len(b.Objects)))
		return b, nil
	}
	bucket, err := snapshotstore.Open(ctx, url)
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
			b.Missing = append(b.Missing, "snapshot "+object+" in "+bucket.String())
		}
	}
	return b, nil
}

func (b backup) lines() [][]string {
	taken := moment(b.TakenAt)
	if b.TakenAt.IsZero() {
		taken = "unknown: it is a copy made by other means"
	}
	lines := [][]string{
		{"file", fmt.Sprintf("%s, %d bytes, all pages and references are valid", b.File, b.Bytes)},
		{"ledger", fmt.Sprintf("%s, schema %d", b.LedgerID, b.Schema)},
		{"taken at", taken},
		{"holds", strings.Join([]string{
			printable.Count(b.Environments, "environment", "environments"), printable.Count(b.Leases, "lease", "leases"),
			printable.Count(b.Living, "living sandbox", "living sandboxes"), printable.Count(b.Events, "event", "events"),
		}, ", ")},
	}
	for _, m := range b.Missing {
		lines = append(lines, []string{"missing", m})
	}
	if b.RestoredTo != "" {
		lines = append(lines, []string{"restored to", b.RestoredTo})
	}
	return lines
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
