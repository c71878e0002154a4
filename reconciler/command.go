package reconciler

import (
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/executor/docker"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/leasing"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/ledger"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/sandbox"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/seal"
	"github.com/sandbox-lease/terraform-provider-sandbox/reconciler/webhook"
)

// NewServeCommand returns the command `reconciler serve`.
func NewServeCommand(version string) *cobra.Command {
	var (
		c        = Config{Version: version}
		generate bool
		format   string
		gateway  gatewayFlags
		level    slog.Level
	)
	cmd := &cobra.Command{
		Use:   "serve",
		Short: "Serve the API and the webhook, and keep sandboxes as their leases say",
		Long: `Serve the API and the webhook, and keep sandboxes as their leases say.

The ledger, the token file and the webhook secret file default to the user's state directory
($XDG_STATE_HOME/terraform-provider-sandbox, or ~/.local/state in its place). Credential files must
be readable by their owner only; --generate-credentials makes those that are missing. Tokens are better
kept in the ledger (reconciler token create): there they can be limited, rotated and revoked while it is served.

Environments with state keep what their agents have under /data in the bucket of --state-url. Its
credentials come from the environment, as for every AWS tool: AWS_ACCESS_KEY_ID and
AWS_SECRET_ACCESS_KEY, AWS_PROFILE, or the machine's role.

Several reconcilers may share a ledger in PostgreSQL. Then they share the bucket as well. Arguments can be seen by others on the machine:
leave the password out of the URL, and give it as PGPASSWORD or in the file that PGPASSFILE names.

Gateways of restricted sandboxes go out as the flags --gateway-... say. Sandboxes whose network is full
get their subnets from --network-pool; the guide security says what they reach.

TLS is for a proxy in front of it: listen on a loopback address unless there is one.`,
		Args:          cobra.NoArgs,
		SilenceUsage:  true,
		SilenceErrors: true,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := c.validate(); err != nil {
				return err
			}
			if err := errors.Join(c.fillIn(generate), gateway.fill(&c.Docker.Gateway, os.Getenv), fillCloudflare(&c.Cloudflare, os.Getenv)); err != nil {
				return err
			}
			if generate {
				var key error
				if c.SecretKeyFile != "" {
					key = seal.Generate(c.SecretKeyFile)
				}
				if err := errors.Join(key,
					generateFile(c.TokenFile, "default "+webhook.NewToken()),
					generateFile(c.SecretFile, webhook.NewSecret()),
				); err != nil {
					return err
				}
			}
			log, err := newLogger(cmd, format, level)
			if err != nil {
				return err
			}
			c.Logger, c.Docker.Logger, c.Cloudflare.Logger = log, log, log
			ctx, stop := signal.NotifyContext(cmd.Context(), os.Interrupt, syscall.SIGTERM)
			defer stop()
			return Serve(ctx, c, nil)
		},
	}
	c.addFlags(cmd.Flags(), &gateway)
	f := cmd.Flags()
	f.BoolVar(&generate, "generate-credentials", false, "make the files of tokens, webhook secrets and keys that are named and missing")
	f.StringVar(&format, "log-format", "text", "text or json")
	f.TextVar(&level, "log-level", slog.LevelInfo, "debug, info, warn or error")
	return cmd
}

// addFlags adds the flags that say what is served.
func (c *Config) addFlags(f *pflag.FlagSet, gateway *gatewayFlags) {
	f.StringVar(&c.Listen, "listen", "127.0.0.1:8787", "address of the HTTP API")
	f.StringVar(&c.LedgerURL, "ledger", "", "URL of the ledger, as sqlite:///absolute/path/ledger.db or postgres://user@host/database")
	f.StringVar(&c.StateURL, "state-url", "", "bucket for the state of sandboxes, as file:///absolute/path or s3://name?region=... (default: state beside a ledger in a file; PostgreSQL has none)")
	f.StringVar(&c.TokenFile, "token-file", "", "`file` of bearer tokens beside those of the ledger (token create), one name token [environments=glob,...] [scopes=scope,...] [not_after=time] a line")
	f.StringVar(&c.SecretFile, "webhook-secret-file", "", "file of webhook secrets, one `whsec_... [not_after=time]` a line")
	f.StringVar(&c.SecretKeyFile, "secret-key-file", "", "file of the keys that secrets of sandboxes are kept under, the same for every reconciler of a ledger (default: beside a ledger that is a file)")
	f.StringSliceVar(&c.Host.Directories, "mount-allow", nil, "`directory` of this machine that environments may mount or copy from, with all below it (default: none)")
	f.StringSliceVar(&c.Host.Variables, "env-allow", nil, "environment `variable` of this program that environments may pass to sandboxes (default: none)")
	f.StringVar(&c.Docker.Host, "docker-host", "", "address of the Docker Engine (default: DOCKER_HOST, then the current docker context)")
	f.StringVar(&c.Docker.Context, "docker-context", "", "docker context to use")
	f.TextVar(&c.Docker.NetworkPool, "network-pool", docker.DefaultNetworkPool, "IPv4 range of /12 to /28 from which each sandbox whose network is full gets a /28; nothing else may use it")
	addCloudflareFlags(f, &c.Cloudflare)
	gateway.add(f, &c.Docker.Gateway)
	f.StringVar(&c.DockerPriceBook, "docker-price-book", "", "JSON file with the prices of sandboxes on Docker (default: free)")
	f.DurationVar(&c.CleanupTTL, "cleanup-ttl", leasing.DefaultCleanupTTL, "how long destroyed leases, their events and deliveries are kept, at least 1h; costs are kept for ever")
}

// fillIn gives what was not named its place in the user's state directory; tokens are there only if there
// is such a file, or it is about to be generated.
func (c *Config) fillIn(generate bool) error {
	if c.LedgerURL != "" && c.TokenFile != "" && c.SecretFile != "" {
		return nil
	}
	dir, err := ledger.StateDir()
	if err != nil {
		return err
	}
	if c.LedgerURL == "" {
		if c.LedgerURL, err = ledger.DefaultURL(); err != nil {
			return err
		}
	}
	if c.TokenFile == "" {
		if file := filepath.Join(dir, "tokens"); generate || exists(file) {
			c.TokenFile = file
		}
	}
	if c.SecretFile == "" {
		c.SecretFile = filepath.Join(dir, "webhook-secrets")
	}
	return nil
}

func exists(file string) bool {
	_, err := os.Stat(file)
	return !errors.Is(err, fs.ErrNotExist)
}

// generateFile writes a credential to a file that does not exist yet.
func generateFile(path, line string) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return sandbox.Errorf(sandbox.Unavailable, "making the directory of %s: %w", path, err)
	}
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if errors.Is(err, fs.ErrExist) {
		return nil
	}
	if err != nil {
		return sandbox.Errorf(sandbox.Unavailable, "making %s: %w", path, err)
	}
	_, err = fmt.Fprintln(f, line)
	if err = errors.Join(err, f.Close()); err != nil {
		return sandbox.Errorf(sandbox.Unavailable, "writing %s: %w", path, err)
	}
	return nil
}

func newLogger(cmd *cobra.Command, format string, level slog.Level) (*slog.Logger, error) {
	o := &slog.HandlerOptions{Level: level}
	switch format {
	case "text":
		return slog.New(slog.NewTextHandler(cmd.ErrOrStderr(), o)), nil
	case "json":
		return slog.New(slog.NewJSONHandler(cmd.ErrOrStderr(), o)), nil
	default:
		return nil, sandbox.Errorf(sandbox.Invalid, "--log-format must be text or json, not %q", format)
	}
}
