package daemon

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/ledger"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/ledger/deliveries"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/ledger/micro"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/ledger/storage"
	"github.com/sandbox-lease/terraform-provider-sandbox/reconciler/access"
	"github.com/sandbox-lease/terraform-provider-sandbox/reconciler/cli/console"
	"github.com/sandbox-lease/terraform-provider-sandbox/reconciler/webhook"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// defaultOverlap is how long the previous secrets stay valid after a rotation.
const defaultOverlap = 24 * time.Hour

func newSecretCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "secret",
		Short: "List and rotate the webhook secrets of game servers",
		Long: `List and rotate the secrets that sign the conditions of game servers. Each machine that runs serve has
them in a file (--webhook-secret-file). A reconciler reloads a changed file within two seconds.` + settingsOfServe,
		Args: console.Exactly(), SilenceUsage: true, SilenceErrors: true,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(newSecretRotateCommand(), newSecretListCommand())
	return cmd
}

func newSecretRotateCommand() *cobra.Command {
	k := &directCommand{}
	var overlap time.Duration
	cmd := &cobra.Command{
		Use:   "rotate",
		Short: "Add a new secret to the file and print it, this one time",
		Long: `Add a new secret at the top of the file and print it, alone on standard output. It is never shown
again. The previous secrets stay valid for --overlap: give the new secret to the game servers within
that time. If several machines serve the ledger, first copy the changed file to all of them.` + settingsOfServe,
		Example: `  sandbox secret rotate --overlap 72h --webhook-secret-file /etc/sandbox/webhook-secrets`,
		Args:    console.Exactly(), SilenceUsage: true, SilenceErrors: true,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := k.resolve(cmd); err != nil {
				return err
			}
			now := time.Now()
			text, secrets, err := access.Rotate(cmd.Context(), k.SecretFile, overlap, now)
			if err != nil {
				return err
			}
			if k.output == "json" {
				return k.print(cmd, rotation{Secret: text, secretList: listOf(secrets, nil, now)})
			}
			cmd.PrintErrln("Secret", secrets[0].ID(), "is active; the previous secrets stay valid until",
				now.Add(overlap).Format(time.RFC3339))
			_, err = fmt.Fprintln(cmd.OutOrStdout(), text)
			return err
		},
	}
	k.addFlags(cmd.Flags(), "webhook-secret-file")
	cmd.Flags().DurationVar(&overlap, "overlap", defaultOverlap,
		"how long the previous secrets stay valid; 0 ends them at once")
	return cmd
}

func newSecretListCommand() *cobra.Command {
	k := &directCommand{}
	cmd := &cobra.Command{
		Use:   "list",
		Short: "List the secrets of the file by their ids",
		Long: `List the secrets of the file by their ids, as in events and logs, with their age and their last use. The
last use comes from the deliveries in the ledger, which are kept for --cleanup-ttl.` + settingsOfServe,
		Args: console.Exactly(), SilenceUsage: true, SilenceErrors: true,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := k.resolve(cmd); err != nil {
				return err
			}
			secrets, err := access.LoadSecrets(k.SecretFile)
			if err != nil {
				return err
			}
			used, err := lastDeliveries(cmd.Context(), k.LedgerURL)
			if err != nil {
				cmd.PrintErrln("The last use of the secrets is unknown:", err)
			}
			return k.print(cmd, listOf(secrets, used, time.Now()))
		},
	}
	k.addFlags(cmd.Flags(), "webhook-secret-file")
	return cmd
}

// lastDeliveries returns the time of the last delivery of each source. The ledger must have this program's schema.
func lastDeliveries(ctx context.Context, url string) (used map[string]micro.Time, err error) {
	x, err := storage.Examine(ctx, url)
	if err != nil || x.ID == "" {
		return nil, err
	}
	if x.Schema != x.Known {
		return nil, sandbox.Errorf(sandbox.Conflict,
			"reading the last deliveries: the ledger has schema %d, but this program needs schema %d", x.Schema, x.Known)
	}
	store, err := ledger.Open(ctx, url, ledger.Options{})
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, store.Close()) }()
	err = store.Read(ctx, func(tx *ledger.Tx) error {
		used, err = deliveries.In(tx).Last()
		return err
	})
	return used, err
}

// secretView is a row of secret list.
type secretView struct {
	ID       string    `json:"id"`
	Status   string    `json:"status"` // active, ending or ended
	Since    time.Time `json:"since,omitzero"`
	NotAfter time.Time `json:"not_after,omitzero"`
	LastUsed time.Time `json:"last_used_at,omitzero"`
	age      time.Duration
}

type secretList struct {
	Secrets []secretView `json:"secrets"`
}

// rotation is the result of secret rotate.
type rotation struct {
	Secret string `json:"secret"`
	secretList
}

func listOf(secrets webhook.Secrets, used map[string]micro.Time, now time.Time) secretList {
	list := secretList{Secrets: make([]secretView, len(secrets))}
	for i, s := range secrets {
		v := secretView{ID: s.ID(), Status: "active", Since: s.Since, NotAfter: s.NotAfter, LastUsed: used[s.Source()].Time()}
		switch {
		case s.Ended(now):
			v.Status = "ended"
		case !s.NotAfter.IsZero():
			v.Status = "ending"
		}
		if !s.Since.IsZero() {
			v.age = now.Sub(s.Since)
		}
		list.Secrets[i] = v
	}
	return list
}

func (l secretList) lines() [][]string {
	lines := [][]string{{"ID", "STATUS", "AGE", "SINCE", "ACCEPTED UNTIL", "LAST USED"}}
	for _, s := range l.Secrets {
		lines = append(lines, []string{s.ID, s.Status, days(s.age), moment(s.Since), moment(s.NotAfter), moment(s.LastUsed)})
	}
	return lines
}

// days formats the age of a credential.
func days(age time.Duration) string {
	switch {
	case age == 0:
		return "-"
	case age < 48*time.Hour:
		return age.Round(time.Minute).String()
	default:
		return fmt.Sprintf("%d days", age/(24*time.Hour))
	}
}

func moment(t time.Time) string {
	if t.IsZero() {
		return "-"
	}
	return t.Local().Format(time.RFC3339)
}
