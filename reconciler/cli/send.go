package cli

import (
	"fmt"
	"net/http"
	"time"

	"github.com/spf13/cobra"

	"github.com/sandbox-lease/terraform-provider-sandbox/reconciler/access"
	"github.com/sandbox-lease/terraform-provider-sandbox/reconciler/client"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

func (a *app) send() *cobra.Command {
	var (
		c                         sandbox.Condition
		id, timestamp, secretFile string
	)
	cmd := &cobra.Command{
		Use:   "send --type game.finished --environment catan-7",
		Short: "Post a condition, as a game server does",
		Long: `Post a condition, as a game server does. The secret in --webhook-secret-file signs it. Without the
flag, the bearer token authenticates it. The command returns once the condition is durable. A repeat
with the same --id, --timestamp and content has no effect.`,
		Example: `  sandbox send --type game.finished --environment catan-7 --webhook-secret-file webhook-secrets
  sandbox send --type agent.death --environment rpg-1 --agent did:plc:abc --reason "a dragon"`,
		Args: exactly(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			c.Timestamp = time.Now().UTC()
			if timestamp != "" {
				var err error
				if c.Timestamp, err = time.Parse(time.RFC3339, timestamp); err != nil {
					return usage("--timestamp: %q is not a time such as 2026-08-01T12:00:00Z", timestamp)
				}
			}
			if id == "" {
				id = newMessageID()
			}
			if err := c.Validate(); err != nil {
				return err
			}
			sender, err := a.sender(cmd, secretFile)
			if err != nil {
				return err
			}
			receipt, err := sender.Deliver(cmd.Context(), sandbox.Delivery{ID: id, Condition: c})
			if err != nil {
				return fmt.Errorf("message %s: %w", id, err)
			}
			if receipt.DidYouMean != "" {
				cmd.PrintErrf("No lease of %s ends on %s; did you mean %s?\n",
					c.Data.EnvironmentID, c.Type, receipt.DidYouMean)
			}
			return a.print(cmd, receipt, func(t *table) {
				t.head(col("MESSAGE"), col("STATUS"), num("LEASES ENDED"), col("DUPLICATE"))
				t.row(receipt.ID, string(receipt.Status), fmt.Sprint(receipt.Matched), yes(receipt.Duplicate))
			})
		},
	}
	f := cmd.Flags()
	f.StringVar(&c.Type, "type", "", "dotted name of the condition, such as game.finished (required)")
	f.StringVar(&c.Data.EnvironmentID, "environment", "", "`id` of the environment (required)")
	f.StringVar(&c.Data.AgentDID, "agent", "", "`DID` of the agent, for a condition about one agent; required for agent.*")
	f.Int64Var(&c.Data.Generation, "generation", 0, "apply only to this generation of the agent's lease")
	f.StringVar(&c.Data.Reason, "reason", "", "reason to record")
	f.StringVar(&id, "id", "", "id of the message (default: generated)")
	f.StringVar(&timestamp, "timestamp", "", "time of the condition, in RFC 3339 (default: now)")
	f.StringVar(&secretFile, "webhook-secret-file", "", "`file` of webhook secrets; the first active one signs")
	return cmd
}

// newMessageID returns the id of a message that the user gave none.
func newMessageID() string { return "msg_" + sandbox.RandomIDs(sandbox.SandboxIDLength) }

// sender returns a client that signs with a webhook secret, or without one sends the bearer token.
func (a *app) sender(cmd *cobra.Command, secretFile string) (*client.Client, error) {
	if secretFile == "" {
		return a.connect(cmd)
	}
	secrets, err := access.LoadSecrets(secretFile)
	if err != nil {
		return nil, err
	}
	for _, secret := range secrets {
		if secret.Ended(time.Now()) {
			continue
		}
		to, err := a.target()
		if err != nil {
			return nil, err
		}
		return a.newClient(cmd, to, client.Config{Sign: func(h http.Header, id string, body []byte) error {
			return secret.Sign(h, id, time.Now(), body)
		}})
	}
	return nil, usage("%s: every secret has expired; add one with %s secret rotate", secretFile, a.name)
}

func yes(b bool) string {
	if b {
		return "yes"
	}
	return ""
}
