package operate

import (
	"fmt"
	"net/http"
	"time"

	"github.com/spf13/cobra"

	"github.com/sandbox-lease/terraform-provider-sandbox/reconciler/access"
	"github.com/sandbox-lease/terraform-provider-sandbox/reconciler/cli/console"
	"github.com/sandbox-lease/terraform-provider-sandbox/reconciler/cli/exit"
	"github.com/sandbox-lease/terraform-provider-sandbox/reconciler/cli/format"
	"github.com/sandbox-lease/terraform-provider-sandbox/reconciler/cli/table"
	"github.com/sandbox-lease/terraform-provider-sandbox/reconciler/client"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

func send(c *console.Console) *cobra.Command {
	var (
		condition                 sandbox.Condition
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
		Args: console.Exactly(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			condition.Timestamp = time.Now().UTC()
			if timestamp != "" {
				var err error
				if condition.Timestamp, err = time.Parse(time.RFC3339, timestamp); err != nil {
					return exit.Usagef("--timestamp: %q is not a time such as 2026-08-01T12:00:00Z", timestamp)
				}
			}
			if id == "" {
				id = console.NewMessageID()
			}
			if err := condition.Validate(); err != nil {
				return err
			}
			sender, err := sender(c, cmd, secretFile)
			if err != nil {
				return err
			}
			receipt, err := sender.Deliver(cmd.Context(), sandbox.Delivery{ID: id, Condition: condition})
			if err != nil {
				return fmt.Errorf("message %s: %w", id, err)
			}
			if why := explanation(condition, receipt); why != "" {
				cmd.PrintErrln("Nothing ended: " + why)
			}
			return c.Print(cmd, receipt, func(t *table.Table) {
				t.Head(table.Col("MESSAGE"), table.Col("STATUS"), table.Num("LEASES ENDED"), table.Col("DUPLICATE"))
				t.Row(receipt.ID, string(receipt.Status), fmt.Sprint(receipt.Matched), format.Yes(receipt.Duplicate))
			})
		},
	}
	f := cmd.Flags()
	f.StringVar(&condition.Type, "type", "", "dotted name of the condition, such as game.finished (required)")
	f.StringVar(&condition.Data.EnvironmentID, "environment", "", "`id` of the environment (required)")
	f.StringVar(&condition.Data.AgentDID, "agent", "",
		"`DID` of the agent, for a condition about one agent; required for agent.*")
	f.Int64Var(&condition.Data.Generation, "generation", 0, "apply only to this generation of the agent's lease")
	f.StringVar(&condition.Data.Reason, "reason", "", "reason to record")
	f.StringVar(&id, "id", "", "id of the message (default: generated)")
	f.StringVar(&timestamp, "timestamp", "", "time of the condition, in RFC 3339 (default: now)")
	f.StringVar(&secretFile, "webhook-secret-file", "", "`file` of webhook secrets; the first active one signs")
	return cmd
}

// explanation says why a condition ended nothing, "" if it did.
func explanation(c sandbox.Condition, r sandbox.Receipt) string {
	environment, subject := c.Data.EnvironmentID, "environment "+c.Data.EnvironmentID
	if c.Data.AgentDID != "" {
		subject = "the lease of " + c.Data.AgentDID + " in " + environment
	}
	switch r.Reason {
	case sandbox.DeliveryNoEnvironment:
		return fmt.Sprintf("there is no environment %s; check --environment", environment)
	case sandbox.DeliveryNoCondition:
		next := "check --type"
		if r.DidYouMean != "" {
			next = "did you mean " + r.DidYouMean + "?"
		}
		return fmt.Sprintf("no lease of %s ends on %s; %s", environment, c.Type, next)
	case sandbox.DeliveryNoLease:
		return fmt.Sprintf("%s has no lease of %s; check --agent", c.Data.AgentDID, environment)
	case sandbox.DeliveryAlreadyEnded:
		if c.Data.Generation != 0 {
			subject = fmt.Sprintf("generation %d of %s", c.Data.Generation, subject)
		}
		return subject + " had already ended"
	case sandbox.DeliveryNotBegun:
		return fmt.Sprintf("%s has not reached generation %d; check --generation", subject, c.Data.Generation)
	case sandbox.DeliveryBeganLater:
		return fmt.Sprintf("what it would end in %s began after %s; check --timestamp", environment,
			c.Timestamp.Format(time.RFC3339))
	default:
		return ""
	}
}

// sender returns a client that signs with a webhook secret, or without one sends the bearer token.
func sender(c *console.Console, cmd *cobra.Command, secretFile string) (*client.Client, error) {
	if secretFile == "" {
		return c.Connect(cmd)
	}
	secrets, err := access.LoadSecrets(secretFile)
	if err != nil {
		return nil, err
	}
	for _, secret := range secrets {
		if secret.Ended(time.Now()) {
			continue
		}
		to, err := c.Target()
		if err != nil {
			return nil, err
		}
		return c.Client(cmd, to, client.Config{Sign: func(h http.Header, id string, body []byte) error {
			return secret.Sign(h, id, time.Now(), body)
		}})
	}
	return nil, exit.Usagef("%s: every secret has expired; add one with %s secret rotate", secretFile, c.Name)
}
