package cli

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
	"github.com/sandbox-lease/terraform-provider-sandbox/reconciler/internal/wire"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// credentials is how commands that manage credentials reach them: in a ledger, or over a reconciler.
type credentials struct {
	*app
	ledgerURL string
}

func (a *app) tokens() *cobra.Command {
	c := &credentials{app: a}
	cmd := &cobra.Command{
		Use:   "token",
		Short: "Make, list, rotate and end the tokens of a ledger",
		Long: `Make, list, rotate and end the tokens of a ledger.

A token has scopes: read (what the ledger knows), lease (also to acquire leases and work in them),
conditions (to send conditions, and nothing else) and admin (everything, environments and tokens
included). With --environment it reaches only environments whose ids have the pattern; then not even
admin manages tokens. What its holder makes belongs to the token's name. Such a token may ask for default
sizes and a restricted network only, and neither for root nor for a runtime, a seccomp profile or a writable
mount of its own: --ceiling raises each of that, and bounds how many environments and leases there may be.

The reconciler at --url is asked, with the token of an administrator. With --ledger the ledger itself
is opened, beside a reconciler that serves it or without: so the first token is made, and so an
administrator comes back who has lost the last one. Whoever may open the ledger needs no token.

A token that was revoked is refused within a second by every reconciler of the ledger.`,
		Example: `  reconciler token create ops --scope admin --ledger sqlite:///var/lib/sandbox/ledger.db
  reconciler token create games --scope conditions --environment 'catan-*' --expires-in 2160h
  reconciler token create team-b --scope admin --environment 'team-b-*' --ceiling memory_mb=8192,environments=20
  reconciler token rotate games --overlap 24h`,
		Args: exactly(),
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.PersistentFlags().StringVar(&c.ledgerURL, "ledger", "", "`URL` of a ledger to work on itself, in place of --url")
	cmd.AddCommand(c.createToken(), c.listTokens(), c.rotateToken(), c.revokeToken())
	return cmd
}

// withTokens calls do with the tokens of the ledger, or those of the reconciler.
func (c *credentials) withTokens(cmd *cobra.Command, do func(context.Context, service.Tokens) error) (err error) {
	if c.ledgerURL == "" {
		service, err := c.connect(cmd)
		if err != nil {
			return err
		}
		return do(cmd.Context(), service)
	}
	if err := c.checkOutput(); err != nil {
		return err
	}
	store, err := ledger.Open(cmd.Context(), c.ledgerURL, ledger.Options{})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, store.Close()) }()
	return do(sandbox.WithActor(cmd.Context(), operator()), access.New(access.Config{Store: store}))
}

// operator is who works on a ledger itself.
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
		Short: "Make a token, and print it this once",
		Args:  exactly("name"),
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
				return usage("--expires-in must not be negative")
			case expiresIn > 0:
				want.ExpiresAt = time.Now().Add(expiresIn).UTC()
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
	f.StringSliceVar(&scopes, "scope", nil, "`scope` of the token: read, lease, conditions or admin (required; may be repeated)")
	f.StringSliceVar(&want.Environments, "environment", nil, "`pattern` of environments that it may touch, such as 'catan-*' (default: all; may be repeated)")
	f.StringSliceVar(&ceiling, "ceiling", nil, ceilingHelp)
	f.DurationVar(&expiresIn, "expires-in", 0, "for how long it is accepted, such as 2160h (default: until it is revoked)")
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
		Short: "Make the next token of a name, and print it this once",
		Long: `Make the next token of a name, with its scopes, environments, ceiling and time to live, and print it this once.
--ceiling gives it another ceiling, in place of the whole one that it had. What belongs to the name stays its own. The tokens that it had are accepted for --overlap yet.`,
		Args: exactly("name"),
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
	cmd.Flags().StringSliceVar(&ceiling, "ceiling", nil, "`name=value` of the next token's ceiling, as create has it (default: the ceiling that it had; may be repeated)")
	cmd.Flags().DurationVar(&overlap, "overlap", 24*time.Hour, "for how long the tokens before it are accepted yet; 0 ends them at once")
	return cmd
}

// printCreated prints the token alone, for $(...), and beside it what it is.
func (c *credentials) printCreated(cmd *cobra.Command, made sandbox.CreatedToken) error {
	if c.output == "json" {
		return c.print(cmd, made, nil)
	}
	ends := "until it is revoked"
	if !made.ExpiresAt.IsZero() {
		ends = "until " + moment(made.ExpiresAt)
	}
	cmd.PrintErrf("Token %s (%s): %s, %s, accepted %s. It is not shown again:\n", made.Name, made.ID, scopesOf(made.Token), environmentsOf(made.Token), ends)
	_, err := fmt.Fprintln(cmd.OutOrStdout(), string(made.Text))
	return err
}

func (c *credentials) listTokens() *cobra.Command {
	var all bool
	cmd := &cobra.Command{
		Use:   "list",
		Short: "List tokens: whose they are, what they allow, and when they were used",
		Args:  exactly(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			return c.withTokens(cmd, func(ctx context.Context, tokens service.Tokens) error {
				found, err := tokens.ListTokens(ctx)
				if err != nil {
					return err
				}
				shown := []sandbox.Token{}
				for _, t := range found {
					if all || t.Live(time.Now()) {
						shown = append(shown, t)
					}
				}
				return c.printTokens(cmd, shown)
			})
		},
	}
	cmd.Flags().BoolVar(&all, "all", false, "also those that have expired or were revoked")
	return cmd
}

func (c *credentials) revokeToken() *cobra.Command {
	return &cobra.Command{
		Use:   "revoke <name or id>",
		Short: "End all tokens of a name, or the one with an id",
		Args:  exactly("name or id"),
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
	return c.print(cmd, wire.TokenPage{Tokens: tokens}, func(t *table) {
		t.row("NAME", "ID", "SCOPES", "ENVIRONMENTS", "CEILING", "CREATED", "BY", "LAST USED", "EXPIRES", "REVOKED")
		for _, one := range tokens {
			t.row(one.Name, one.ID, scopesOf(one), environmentsOf(one), ceilingOf(one), moment(one.CreatedAt), one.CreatedBy,
				moment(one.LastUsedAt), moment(one.ExpiresAt), moment(one.RevokedAt))
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
