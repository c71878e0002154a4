package daemon

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/backup"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/ledger"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/ledger/backupfile"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/ledger/location"
	"github.com/sandbox-lease/terraform-provider-sandbox/reconciler/cli/terminal"
	"github.com/sandbox-lease/terraform-provider-sandbox/reconciler/internal/printable"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// places returns where the settings put a reconciler's data.
func (k *directCommand) places() backup.Config {
	return backup.Config{
		LedgerURL:     k.LedgerURL,
		SecretKeyFile: cmp.Or(k.SecretKeyFile, location.SecretKeyFile(k.LedgerURL)),
		SnapshotURL:   cmp.Or(k.SnapshotURL, location.SnapshotURL(k.LedgerURL)),
	}
}

// interruptible returns a context that ends with a signal, so that the command removes what it has not finished.
func interruptible(cmd *cobra.Command) (ctx context.Context, stop context.CancelFunc) {
	return signal.NotifyContext(cmd.Context(), os.Interrupt, syscall.SIGTERM)
}

func newBackupCommand(version string) *cobra.Command {
	k := &directCommand{}
	var withoutKeys, withoutData bool
	cmd := &cobra.Command{
		Use:   "backup <file>",
		Short: "Back up ledger, keys and saved data to a new file, also while serve runs",
		Long: `Write one archive (tar) with everything that a reconciler must not lose:
- the ledger of one moment, from SQLite or PostgreSQL. You can restore it to both;
- the key file of the secrets (--secret-key-file). --without-keys leaves it out;
- the saved data of the bucket (--state-url): snapshots of /data, and large output of commands.
  --without-saved-data leaves it out.
The archive ends with a manifest of checksums. Running reconcilers go on, and no request waits. The
command never replaces an existing file. If a key or a snapshot cannot be found, it writes the rest,
lists what is missing and exits with 1.

THE ARCHIVE IS A SECRET: ledger and keys together reveal the secrets of all environments. The file
has mode 0600. Encrypt it before you store it elsewhere, or pass --without-keys and store the key
file apart. Tokens are in it only as hashes. Back up the files of tokens and webhook secrets
yourself.

Next to the archive, the command needs room for a copy of the ledger.` + settingsOfServe,
		Example: `  sandbox backup --config /etc/sandbox/reconciler.yaml /var/backups/sandbox-$(date +%F).tar`,
		Args:    one("the file to create"), SilenceUsage: true, SilenceErrors: true,
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := k.resolve(cmd); err != nil {
				return err
			}
			c := k.places()
			c.WithoutKeys, c.WithoutSavedData, c.Version = withoutKeys, withoutData, version
			ctx, restoreSignals := interruptible(cmd)
			defer restoreSignals()
			stop := terminal.Progress(cmd, "backing up")
			r, err := backup.Create(ctx, args[0], c)
			stop()
			if err != nil {
				return err
			}
			if err := k.print(cmd, backupReport{Report: r}); err != nil || len(r.Missing) == 0 {
				return err
			}
			return sandbox.Errorf(sandbox.Failed, "the backup %s was written, but lacks %s; restore takes it only with "+
				"--incomplete", args[0], printable.Count(len(r.Missing), "part", "parts"))
		},
	}
	k.addFlags(cmd.Flags(), "secret-key-file", "state-url", "without-keys", "without-saved-data")
	cmd.Flags().BoolVar(&withoutKeys, "without-keys", false, "leave out the keys; then the archive reveals no secret")
	cmd.Flags().BoolVar(&withoutData, "without-saved-data", false, "leave out the bucket's snapshots and output")
	return cmd
}

func newRestoreCommand() *cobra.Command {
	k := &directCommand{}
	var check, incomplete, inPlace bool
	cmd := &cobra.Command{
		Use:   "restore <file> | restore --in-place",
		Short: "Restore ledger, keys and saved data from a backup, or check a backup",
		Long: `Restore a backup: its saved data to the bucket (--state-url), its keys to the key file
(--secret-key-file), and its ledger (--ledger). The ledger must not exist yet. Stop every reconciler
of the ledger first. An existing key file is kept, and must have the backup's keys. Files of earlier
versions, with the ledger only, can be restored too.

The command first checks the whole backup, and looks for the keys and snapshots that the ledger
needs: in the backup, and otherwise in the key file and the bucket. If some are missing, it writes
nothing. --incomplete restores anyway. --check only checks. TMPDIR needs room for a copy of the
ledger.

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
			switch {
			case inPlace:
				noted, err := backupfile.NoteRestored(cmd.Context(), k.LedgerURL, ledger.Options{})
				if err != nil {
					return err
				}
				return k.print(cmd, restoredInPlace{noted})
			case check:
				return k.check(cmd, args[0], incomplete)
			default:
				return k.restore(cmd, args[0], incomplete)
			}
		},
	}
	k.addFlags(cmd.Flags(), "secret-key-file", "state-url")
	cmd.Flags().BoolVar(&check, "check", false, "check the backup without restoring it")
	cmd.Flags().BoolVar(&incomplete, "incomplete", false, "restore even if keys or snapshots are missing")
	cmd.Flags().BoolVar(&inPlace, "in-place", false,
		"record that the ledger was restored by other means (pg_restore, a disk snapshot)")
	return cmd
}

func (k *directCommand) check(cmd *cobra.Command, file string, incomplete bool) error {
	ctx, restoreSignals := interruptible(cmd)
	defer restoreSignals()
	stop := terminal.Progress(cmd, "checking the backup")
	r, err := backup.Check(ctx, file, k.places())
	stop()
	if err != nil {
		return err
	}
	if err := k.print(cmd, backupReport{Report: r}); err != nil || len(r.Missing) == 0 || incomplete {
		return err
	}
	return lacking(r, "the backup is incomplete")
}

func (k *directCommand) restore(cmd *cobra.Command, file string, incomplete bool) error {
	ctx, restoreSignals := interruptible(cmd)
	defer restoreSignals()
	stop := terminal.Progress(cmd, "restoring")
	r, isRestored, err := backup.Restore(ctx, file, k.places(), incomplete)
	stop()
	if err != nil {
		return err
	}
	report := backupReport{Report: r}
	if isRestored {
		report.RestoredTo = location.Redact(k.LedgerURL)
	}
	if err := k.print(cmd, report); err != nil || isRestored {
		return err
	}
	return lacking(r, "nothing was restored")
}

// lacking is the error of a backup with missing parts, which the command has already printed.
func lacking(r backup.Report, what string) error {
	return sandbox.Errorf(sandbox.Failed, "%s: %s missing; supply the missing files, or pass --incomplete",
		what, printable.Count(len(r.Missing), "part is", "parts are"))
}

// restoredInPlace is the result of restore --in-place.
type restoredInPlace struct{ backupfile.Restored }

func (r restoredInPlace) lines() [][]string {
	return [][]string{{"ledger", r.LedgerID}, {"restored at", moment(r.At)}}
}

// backupReport is the result of backup and restore.
type backupReport struct {
	backup.Report
	RestoredTo string `json:"restored_to,omitempty"`
}

// shownMissing limits the missing parts that a table shows. JSON has all.
const shownMissing = 10

func (b backupReport) lines() [][]string {
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
			printable.Count(b.Living, "live sandbox", "live sandboxes"), printable.Count(b.Events, "event", "events"),
		}, ", ")},
		{"keys", b.keys()},
		{"saved data", b.savedData()},
	}
	for i, m := range b.Missing {
		if i == shownMissing {
			m = fmt.Sprintf("and %d more", len(b.Missing)-i)
		}
		if i <= shownMissing {
			lines = append(lines, []string{"missing", m})
		}
	}
	if b.MissingOutputs > 0 {
		lines = append(lines, []string{"lost", outputs(b.MissingOutputs)})
	}
	if b.RestoredTo != "" {
		lines = append(lines, []string{"restored to", b.RestoredTo})
	}
	return lines
}

func (b backupReport) keys() string {
	switch {
	case b.Keys:
		return "in the file: keep it secret"
	case b.WithoutKeys:
		return "left out"
	default:
		return "none in the file"
	}
}

func (b backupReport) savedData() string {
	if b.WithoutSavedData {
		return "left out"
	}
	return printable.Count(b.Snapshots, "snapshot", "snapshots") + ", " + outputs(b.Outputs)
}

func outputs(n int) string { return printable.Count(n, "output of a command", "outputs of commands") }
