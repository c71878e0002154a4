package operate

import (
	"context"
	"errors"
	"fmt"
	"os/user"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/ledger"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/service"
	"github.com/sandbox-lease/terraform-provider-sandbox/reconciler/access"
	"github.com/sandbox-lease/terraform-provider-sandbox/reconciler/cli/console"
	"github.com/sandbox-lease/terraform-provider-sandbox/reconciler/cli/exit"
	"github.com/sandbox-lease/terraform-provider-sandbox/reconciler/cli/flags"
	"github.com/sandbox-lease/terraform-provider-sandbox/reconciler/cli/format"
	"github.com/sandbox-lease/terraform-provider-sandbox/reconciler/cli/table"
	"github.com/sandbox-lease/terraform-provider-sandbox/reconciler/internal/wire"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// credentials gives commands access to tokens, in a ledger or through a reconciler.
type credentials struct {
	*console.Console
	ledgerURL string
}

func tokens(c *console.Console) *cobra.Command {
	t := &credentials{Console: c}
	cmd := console.Group("token", "Create, list, rotate and revoke the tokens of a ledger",
		t.createToken(), t.listTokens(), t.rotateToken(), t.revokeToken())
	cmd.Long = `Create, list, rotate and revoke the tokens of a ledger.

A token has scopes: read (read everything), lease (read, acquire leases and work in them), conditions
(only send conditions) and admin (everything, including environments and tokens). --environment limits
a token to environments with matching ids. Such a token cannot manage tokens, even with admin. It may
use only default sizes and a restricted network, and no root, custom runtime, seccomp profile or
writable mount. --ceiling raises these limits, and limits the number of environments and leases.
Environments and leases belong to the name of the token that created them.

The commands ask the reconciler at --url and need an admin token. With --ledger they open the ledger
directly and need no token, only access to the ledger. A running reconciler does not conflict with
that. Use --ledger to create the first token, or when the last admin token is lost.

Every reconciler of the ledger rejects a revoked token within one second.`
	cmd.Example = `  sandbox token create ops --scope admin --ledger sqlite:///var/lib/sandbox/ledger.db
  sandbox token create games --scope conditions --environment 'catan-*' --expires-in 2160h
  sandbox token create team-b --scope admin --environment 'team-b-*' --ceiling memory_mb=8192
  sandbox token rotate games --overlap 24h`
	cmd.PersistentFlags().StringVar(&t.ledgerURL, "ledger", "", "`URL` of the ledger to open directly, instead of --url")
	return cmd
}

// withTokens calls do with the tokens of the ledger or of the reconciler.
func (c *credentials) withTokens(cmd *cobra.Command, do func(context.Context, service.Tokens) error) (err error) {
	if c.ledgerURL == "" {
		service, err := c.Connect(cmd)
		if err != nil {
			return err
		}
		return do(cmd.Context(), service)
	}
	if err := c.CheckOutput(); err != nil {
		return err
	}
	store, err := ledger.Open(cmd.Context(), c.ledgerURL, ledger.Options{})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, store.Close()) }()
	return do(sandbox.WithActor(cmd.Context(), operator()), access.New(access.Config{Store: store}))
}

// operator is the actor of commands that open the ledger directly.
func operator() sandbox.Actor {
	name := "unknown"
	if u, err := user.Current(); err == nil {
		name = u.Username
	}
	return sandbox.Actor{Name: "ledger:" + name}
}

func (c *credentials) createToken() *cobra.Command {
	var (
		want      sandbox.CreateToken
		scopes    []string
		ceiling   []string
		expiresIn time.Duration
	)
	cmd := &cobra.Command{
		Use:   "create <name> --scope <scope>",
		Short: "Create a token and print it, this one time",
		Args:  console.Exactly("name"),
		RunE: func(cmd *cobra.Command, args []string) error {
			want.Name = args[0]
			for _, s := range scopes {
				want.Scopes = append(want.Scopes, sandbox.Scope(s))
			}
			var err error
			if want.Ceiling, err = parseCeiling(ceiling); err != nil {
				return err
			}
			switch {
			case expiresIn < 0:
				return exit.Usagef("--expires-in must not be negative")
			case expiresIn > 0:
				want.ExpiresAt = c.Now().Add(expiresIn).UTC()
			}
			return c.withTokens(cmd, func(ctx context.Context, tokens service.Tokens) error {
				made, err := tokens.CreateToken(ctx, want)
				if err != nil {
					return err
				}
				return c.printCreated(cmd, made)
			})
		},
	}
	f := cmd.Flags()
	flags.List(f, &scopes, "scope", nil,
		"`scope` of the token: read, lease, conditions or admin (required; may be repeated)")
	flags.List(f, &want.Environments, "environment", nil,
		"`pattern` of environments that the token may use, such as 'catan-*' (default: all; may be repeated)")
	flags.List(f, &ceiling, "ceiling", nil, ceilingHelp)
	f.DurationVar(&expiresIn, "expires-in", 0, "lifetime of the token, such as 2160h (default: until it is revoked)")
	return cmd
}

func (c *credentials) rotateToken() *cobra.Command {
	want := sandbox.RotateToken{}
	var (
		overlap time.Duration
		ceiling []string
	)
	cmd := &cobra.Command{
		Use:   "rotate <name>",
		Short: "Replace a token under its name, and print the new one once",
		Long: `Create the next token of a name and print it, this one time. It has the scopes, environments, ceiling
and lifetime of the previous token. --ceiling replaces the whole ceiling. The name keeps its
environments and leases. The previous tokens stay valid for --overlap.`,
		Args: console.Exactly("name"),
		RunE: func(cmd *cobra.Command, args []string) error {
			want.Name, want.Overlap = args[0], sandbox.Duration(overlap)
			if len(ceiling) > 0 {
				another, err := parseCeiling(ceiling)
				if err != nil {
					return err
				}
				want.Ceiling = &another
			}
			return c.withTokens(cmd, func(ctx context.Context, tokens service.Tokens) error {
				made, err := tokens.RotateToken(ctx, want)
				if err != nil {
					return err
				}
				return c.printCreated(cmd, made)
			})
		},
	}
	flags.List(cmd.Flags(), &ceiling, "ceiling", nil,
		"`name=value` of the new ceiling, as in create (default: the previous ceiling; may be repeated)")
	cmd.Flags().DurationVar(&overlap, "overlap", 24*time.Hour,
		"how long the previous tokens stay valid; 0 revokes them at once")
	return cmd
}

// printCreated prints the token alone on standard output, for $(...), and its description on standard error.
func (c *credentials) printCreated(cmd *cobra.Command, made sandbox.CreatedToken) error {
	if c.Output == console.JSON {
		return c.Print(cmd, made, nil)
	}
	ends := "until it is revoked"
	if !made.ExpiresAt.IsZero() {
		ends = "until " + format.Moment(made.ExpiresAt)
	}
	cmd.PrintErrf("Token %s (%s): %s, %s, valid %s. It is not shown again:\n",
		made.Name, made.ID, scopesOf(made.Token), environmentsOf(made.Token), ends)
	_, err := fmt.Fprintln(cmd.OutOrStdout(), string(made.Text))
	return err
}

func (c *credentials) listTokens() *cobra.Command {
	var all bool
	cmd := &cobra.Command{
		Use:   "list",
		Short: "List tokens with their scopes, limits and last use",
		Args:  console.Exactly(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			return c.withTokens(cmd, func(ctx context.Context, tokens service.Tokens) error {
				found, err := tokens.ListTokens(ctx)
				if err != nil {
					return err
				}
				shown := []sandbox.Token{}
				for _, t := range found {
					if all || t.Live(c.Now()) {
						shown = append(shown, t)
					}
				}
				return c.printTokens(cmd, shown)
			})
		},
	}
	cmd.Flags().BoolVar(&all, "all", false, "include expired and revoked tokens")
	return cmd
}

func (c *credentials) revokeToken() *cobra.Command {
	return &cobra.Command{
		Use:   "revoke <name or id>",
		Short: "Revoke all tokens of a name, or the token with an id",
		Args:  console.Exactly("name or id"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return c.withTokens(cmd, func(ctx context.Context, tokens service.Tokens) error {
				revoked, err := tokens.RevokeToken(ctx, args[0])
				if err != nil {
					return err
				}
				return c.printTokens(cmd, revoked)
			})
		},
	}
}

func (c *credentials) printTokens(cmd *cobra.Command, tokens []sandbox.Token) error {
	return c.Print(cmd, wire.TokenPage{Tokens: tokens}, func(t *table.Table) {
		t.Head(table.Col("NAME"), table.Col("ID"), table.Col("SCOPES"), table.Flex("ENVIRONMENTS"), table.Wide("CEILING"),
			table.Wide("CREATED"), table.Wide("BY"), table.Col("LAST USED"), table.Col("EXPIRES"), table.Col("REVOKED"))
		for _, one := range tokens {
			t.Row(one.Name, one.ID, scopesOf(one), environmentsOf(one), ceilingOf(one), t.When(one.CreatedAt), one.CreatedBy,
				t.When(one.LastUsedAt), t.When(one.ExpiresAt), t.When(one.RevokedAt))
		}
	})
}

func scopesOf(t sandbox.Token) string {
	texts := make([]string, len(t.Scopes))
	for i, s := range t.Scopes {
		texts[i] = string(s)
	}
	return strings.Join(texts, ",")
}

func environmentsOf(t sandbox.Token) string {
	if len(t.Environments) == 0 {
		return "all environments"
	}
	return strings.Join(t.Environments, ",")
}
