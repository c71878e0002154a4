// Package daemon holds the commands that need no running reconciler: serve is one, and the others work on its ledger
// and its files.
package daemon

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"runtime/debug"
	"strings"
	"sync"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/sandbox-lease/terraform-provider-sandbox/reconciler"
	"github.com/sandbox-lease/terraform-provider-sandbox/reconciler/api/exchange"
	"github.com/sandbox-lease/terraform-provider-sandbox/reconciler/cli"
	"github.com/sandbox-lease/terraform-provider-sandbox/reconciler/cli/console"
)

// serve is the command serve.
type serve struct {
	settings
	terminal        func(io.Writer) bool // reports whether an output goes to a terminal
	generate, check bool
}

// NewServeCommand returns the command serve.
func NewServeCommand(c cli.Config) *cobra.Command {
	s := &serve{settings: settings{Config: reconciler.Config{Version: c.Version}}, terminal: c.IsTerminal}
	cmd := &cobra.Command{
		Use:   "serve",
		Short: "Run the reconciler: serve the API and the webhook, and manage the sandboxes",
		Long: `Run the reconciler. It serves the API and the webhook, and creates, changes and destroys sandboxes as
their leases require.

The ledger, the token file and the webhook secret file default to the user's state directory
($XDG_STATE_HOME/terraform-provider-sandbox, or ~/.local/state/terraform-provider-sandbox). Only their
owner may have access to credential files. --generate-credentials creates missing ones. Prefer tokens
in the ledger (sandbox token create): you can limit, rotate and revoke them while serve runs.

Environments with state keep snapshots of /data in the bucket of --state-url. The credentials of the
bucket come from the environment, as for every AWS tool: AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY,
AWS_PROFILE, or the machine's role.

Several reconcilers can share a ledger in PostgreSQL. They must share the bucket too. Other users of
the machine can see arguments: leave the password out of the URL, and set PGPASSWORD or PGPASSFILE.

The --oidc-... flags let users log in at the dashboard with an OpenID Connect provider. Their groups there
have roles here. The operations guide has an example.

The --gateway-... flags configure how the gateways of restricted sandboxes reach the network. Sandboxes
with a full network get their subnets from --network-pool. The security guide describes what they can
reach.

Each flag is a setting. You can also set it in the YAML file of --config by the name of the flag
(token-file: /etc/sandbox/tokens), with a list for a flag that may be repeated, or in the environment
(SANDBOX_SERVE_TOKEN_FILE). Flags override the environment, which overrides the file. An unknown name
is an error. --check prints each setting with its source, reads every file that the settings name, and
exits.

--tls-cert and --tls-key serve TLS 1.2 and newer. The reconciler reloads both when they change. Without
them, it serves only this machine (127.0.0.1, or unix:///path) or a proxy (--trusted-proxy). --insecure
serves other machines in plain text.

SIGHUP reloads tokens, webhook secrets, the certificate, the log level, and the client secret and roles
of OpenID Connect. It logs which changed settings need a restart.`,
		Args:          console.Exactly(),
		SilenceUsage:  true,
		SilenceErrors: true,
		RunE: func(cmd *cobra.Command, _ []string) error {
			from, err := resolveSettings(cmd.Flags(), os.Environ())
			if err != nil {
				return err
			}
			if err := s.complete(s.generate); err != nil {
				return err
			}
			if s.check {
				return s.verify(cmd, from)
			}
			return s.run(cmd, from)
		},
	}
	s.addFlags(cmd.Flags())
	cmd.Flags().BoolVar(&s.generate, "generate-credentials", false,
		"create missing files of tokens, webhook secrets and keys")
	cmd.Flags().BoolVar(&s.check, "check", false, "print the settings, read the files they name, and exit")
	return cmd
}

// verify prints the settings, and reads the files that they name.
func (s *serve) verify(cmd *cobra.Command, from origins) error {
	if err := printEffective(cmd.OutOrStdout(), cmd.Flags(), from, s.derived()); err != nil {
		return err
	}
	s.Logger = slog.New(slog.DiscardHandler)
	return s.CheckFiles()
}

// garbagePercent is how much the heap may grow between two garbage collections. The live heap is a few MiB, mostly
// tables of libraries. With Go's default of 100, marking it takes a tenth of the CPU time of a burst of conditions.
const garbagePercent = 200

func (s *serve) run(cmd *cobra.Command, from origins) error {
	if s.generate {
		if err := s.generateFiles(); err != nil {
			return err
		}
	}
	level := &slog.LevelVar{}
	level.Set(s.logLevel)
	log := newLogger(cmd, s.logFormat, level)
	s.Logger, s.Docker.Logger, s.Cloudflare.Logger = log, log, log
	ctx, stop := signal.NotifyContext(cmd.Context(), os.Interrupt, syscall.SIGTERM)
	reloads := make(chan reconciler.Config)
	s.Reloads = reloads
	hangups := make(chan os.Signal, 1)
	signal.Notify(hangups, syscall.SIGHUP)
	defer signal.Stop(hangups)
	r := reloader{flags: cmd.Flags(), from: from, was: effective(cmd.Flags()), level: level, log: log, to: reloads}
	var reloading sync.WaitGroup
	reloading.Go(func() { r.run(ctx, hangups) })
	defer reloading.Wait()
	defer stop() // stops the reloader
	systemd := serviceManager{log}
	defer context.AfterFunc(ctx, systemd.stopping)()
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(garbagePercent)
	}
	s.Command = strings.TrimSuffix(cmd.CommandPath(), " "+cmd.Name())
	return reconciler.Serve(ctx, s.Config, func(started reconciler.Started) {
		if out := cmd.OutOrStdout(); s.terminal(out) {
			fmt.Fprint(out, started) // best effort: the log says the same
		}
		systemd.ready(started.Address)
	})
}

// newLogger returns a logger on standard error. The caller has checked the format.
func newLogger(cmd *cobra.Command, format string, level slog.Leveler) *slog.Logger {
	o := &slog.HandlerOptions{Level: level}
	if format == "json" {
		return slog.New(exchange.LogHandler(slog.NewJSONHandler(cmd.ErrOrStderr(), o)))
	}
	return slog.New(exchange.LogHandler(slog.NewTextHandler(cmd.ErrOrStderr(), o)))
}
