package reconciler

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/ledger"
	"github.com/sandbox-lease/terraform-provider-sandbox/reconciler/webhook"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// defaultOverlap is for how long a secret is accepted that was followed by another, unless it is said.
const defaultOverlap = 24 * time.Hour

func newSecretCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "secret",
		Short: "List and rotate the webhook secrets of game servers",
		Long: `List and rotate the secrets that game servers sign conditions with. They stand in the file of serve
(--webhook-secret-file), on each machine that serves the ledger. A reconciler takes a changed file over within two seconds.` + settingsOfServe,
		Args: cobra.NoArgs, SilenceUsage: true, SilenceErrors: true,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(newSecretRotateCommand(), newSecretListCommand())
	return cmd
}

func newSecretRotateCommand() *cobra.Command {
	k := &custody{}
	var overlap time.Duration
	cmd := &cobra.Command{
		Use:   "rotate",
		Short: "Put a new secret before those of the file, and print it this once",
		Long: `Put a new secret before those of the file, and print it this once, alone on standard output. Those before it are accepted for
the overlap yet: give the new one to game servers within that time. Where several machines serve the ledger, bring them the
changed file before game servers sign with the new secret.` + settingsOfServe,
		Example: `  reconciler secret rotate --overlap 72h --webhook-secret-file /etc/sandbox/webhook-secrets`,
		Args:    cobra.NoArgs, SilenceUsage: true, SilenceErrors: true,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := k.settle(cmd); err != nil {
				return err
			}
			now := time.Now()
			text, secrets, err := webhook.Rotate(cmd.Context(), k.SecretFile, overlap, now)
			if err != nil {
				return err
			}
			if k.output == "json" {
				return k.print(cmd, rotation{Secret: text, secretList: listOf(secrets, nil, now)})
			}
			cmd.PrintErrln("Secret", secrets[0].ID(), "signs from now on; those before it are accepted until", now.Add(overlap).Format(time.RFC3339))
			_, err = fmt.Fprintln(cmd.OutOrStdout(), text)
			return err
		},
	}
	k.addFlags(cmd.Flags(), "webhook-secret-file")
	cmd.Flags().DurationVar(&overlap, "overlap", defaultOverlap, "for how long the secrets before it are accepted yet; 0: no longer")
	return cmd
}

func newSecretListCommand() *cobra.Command {
	k := &custody{}
	cmd := &cobra.Command{
		Use:   "list",
		Short: "List the secrets of the file, without their text",
		Long: `List the secrets of the file by their ids, which events and logs name them by, with their ages and, where the ledger can be
read, when each was used last. That is known for as long as deliveries are kept (--cleanup-ttl).` + settingsOfServe,
		Args: cobra.NoArgs, SilenceUsage: true, SilenceErrors: true,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := k.settle(cmd); err != nil {
				return err
			}
			secrets, err := webhook.LoadSecrets(k.SecretFile)
			if err != nil {
				return err
			}
			used, err := lastDeliveries(cmd.Context(), k.LedgerURL)
			if err != nil {
				cmd.PrintErrln("When they were used last is not known:", err)
			}
			return k.print(cmd, listOf(secrets, used, time.Now()))
		},
	}
	k.addFlags(cmd.Flags(), "webhook-secret-file")
	return cmd
}

// lastDeliveries returns when each source was last received from, of a ledger of this program's schema.
func lastDeliveries(ctx context.Context, url string) (used map[string]ledger.Time, err error) {
	x, err := ledger.Examine(ctx, url)
	if err != nil || x.ID == "" {
		return nil, err
	}
	if x.Schema != x.Known {
		return nil, sandbox.Errorf(sandbox.Conflict, "the ledger has schema %d, and this program knows schema %d", x.Schema, x.Known)
	}
	store, err := ledger.Open(ctx, url, ledger.Options{})
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, store.Close()) }()
	err = store.Read(ctx, func(tx *ledger.Tx) error {
		used, err = tx.LastDeliveries()
		return err
	})
	return used, err
}

// secretView is a secret as it is listed.
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

// rotation is what rotate made.
type rotation struct {
	Secret string `json:"secret"`
	secretList
}

func listOf(secrets webhook.Secrets, used map[string]ledger.Time, now time.Time) secretList {
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

// days shows an age as people say it of credentials.
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
