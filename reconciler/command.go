package reconciler

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"os/signal"
	"path/filepath"
	"runtime/debug"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/executor/docker"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/ledger"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/retention"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/seal"
	"github.com/sandbox-lease/terraform-provider-sandbox/reconciler/api"
	"github.com/sandbox-lease/terraform-provider-sandbox/reconciler/webhook"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// serving is what the command line of serve says.
type serving struct {
	Config
	gateway         gatewayFlags
	generate, check bool
}

// What callers may ask for unless it is said. An apply of 50 leases at once takes about 150 requests, a thousand agents that each
// run a command every two seconds take 500 a second; a program that asks in a loop by mistake asks thousands.
const (
	defaultPerToken   = 500
	defaultPerAddress = 1000
	defaultFailures   = 60
	// A connection is unauthenticated for some milliseconds until its first request shows a token. An idle one takes about 20 KB.
	defaultUnauthenticated           = 4096
	defaultUnauthenticatedPerAddress = 1024
	defaultUnauthenticatedTimeout    = 30 * time.Second
)

// NewServeCommand returns the command `reconciler serve`.
func NewServeCommand(version string) *cobra.Command {
	s := &serving{Config: Config{Version: version}}
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

Each flag is a setting. --config names a file of settings in YAML, by the flags' names (token-file: /etc/sandbox/tokens),
with lists where a flag may be repeated; a setting may also stand in the environment (SANDBOX_SERVE_TOKEN_FILE). Flags go
before the environment, that goes before the file, and what is named nowhere has its default. A name that is no
setting is refused. --check prints what is effective and where it comes from, reads every file that is named, and ends.

--tls-cert and --tls-key serve TLS (1.2 and newer); they are read again when they change. Without them, the API
is served to this machine only (127.0.0.1, or unix:///path), behind a proxy (--trusted-proxy), or in clear (--insecure).

SIGHUP has tokens, webhook secrets, certificate and log level read again, and told which changed settings need a restart.`,
		Args:          cobra.NoArgs,
		SilenceUsage:  true,
		SilenceErrors: true,
		RunE: func(cmd *cobra.Command, _ []string) error {
			from, err := settle(cmd.Flags(), os.Environ())
			if err != nil {
				return err
			}
			if err := s.complete(); err != nil {
				return err
			}
			if s.check {
				return s.verify(cmd, from)
			}
			return s.serve(cmd, from)
		},
	}
	s.addFlags(cmd.Flags(), &s.gateway)
	cmd.Flags().BoolVar(&s.generate, "generate-credentials", false, "make the files of tokens, webhook secrets and keys that are named and missing")
	cmd.Flags().BoolVar(&s.check, "check", false, "print what is effective, read what it names, and end")
	return cmd
}

// complete fills in what was not said, and checks the whole. Errors: Invalid.
func (s *serving) complete() error {
	if err := s.validate(); err != nil {
		return err
	}
	return errors.Join(s.fillIn(s.generate), s.gateway.fill(&s.Docker.Gateway, os.Getenv), fillCloudflare(&s.Cloudflare, os.Getenv))
}

// verify prints what is effective, and reads all that it names.
func (s *serving) verify(cmd *cobra.Command, from origins) error {
	if err := printEffective(cmd.OutOrStdout(), cmd.Flags(), from); err != nil {
		return err
	}
	s.Logger = slog.New(slog.DiscardHandler)
	_, err := s.load()
	return err
}

// garbagePercent is by how much the heap may grow between two collections. What lives is a few MiB, most of it tables of
// libraries: at Go's default of 100, going through it takes a tenth of the processor time of a storm of conditions.
const garbagePercent = 200

func (s *serving) serve(cmd *cobra.Command, from origins) error {
	if s.generate {
		if err := s.generateFiles(); err != nil {
			return err
		}
	}
	level := &slog.LevelVar{}
	level.Set(s.LogLevel)
	log := newLogger(cmd, s.LogFormat, level)
	s.Logger, s.Docker.Logger, s.Cloudflare.Logger = log, log, log
	ctx, stop := signal.NotifyContext(cmd.Context(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	reloads := make(chan Config)
	s.Reloads = reloads
	hangups := make(chan os.Signal, 1)
	signal.Notify(hangups, syscall.SIGHUP)
	defer signal.Stop(hangups)
	stopReloading := running(ctx, func(ctx context.Context) {
		r := reloader{flags: cmd.Flags(), from: from, was: effective(cmd.Flags()), level: level, log: log, to: reloads}
		r.run(ctx, hangups)
	})
	defer stopReloading()
	systemd := manager{log}
	defer context.AfterFunc(ctx, systemd.stopping)()
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(garbagePercent)
	}
	return Serve(ctx, s.Config, systemd.ready)
}

// generateFiles makes the files of credentials that are missing.
func (s *serving) generateFiles() error {
	var key error
	if s.SecretKeyFile != "" {
		key = seal.Generate(s.SecretKeyFile)
	}
	return errors.Join(key,
		generateFile(s.TokenFile, "default "+webhook.NewToken()),
		generateFile(s.SecretFile, webhook.NewSecret()),
	)
}

// addFlags adds the flags that say what is served.
func (c *Config) addFlags(f *pflag.FlagSet, gateway *gatewayFlags) {
	f.String(flagConfig, "", "`file` of settings in YAML, by the names of these flags")
	f.StringVar(&c.Listen, "listen", "127.0.0.1:8787", "`address` of the HTTP API, or unix:///path of a socket, which its owner and group may use")
	f.StringVar(&c.TLSCert, "tls-cert", "", "PEM `file` of the server's certificate, with those between it and its authority (default: no TLS)")
	f.StringVar(&c.TLSKey, "tls-key", "", "PEM `file` of the certificate's key")
	f.StringSliceVar(&c.TrustedProxies, "trusted-proxy", nil, "`network` of proxies in front of it, as 10.0.0.0/8, whose X-Forwarded-For and X-Forwarded-Proto are believed (default: none; may be repeated)")
	f.Float64Var(&c.Limits.PerToken, "rate-limit-token", defaultPerToken, "`requests` a second with one token, excluding conditions; allows a burst of 2 s; 0: no limit")
	f.Float64Var(&c.Limits.PerAddress, "rate-limit-address", defaultPerAddress, "`requests` a second from one address, excluding conditions; allows a burst of 2 s; 0: no limit")
	f.IntVar(&c.Limits.Failures, "auth-failures", defaultFailures, "`failures` to authenticate a minute that one address is told of, beyond which they are put off; 0: no limit")
	f.IntVar(&c.Unauthenticated.Total, "unauthenticated-connections", defaultUnauthenticated, "`connections` that may be open without a valid credential; one more closes the oldest of the address with the most; 0: no limit")
	f.IntVar(&c.Unauthenticated.PerAddress, "unauthenticated-connections-address", defaultUnauthenticatedPerAddress, "`connections` that one address (IPv6: one /64) may have open without a valid credential, trusted proxies apart; one more closes its oldest; 0: no limit")
	f.DurationVar(&c.Unauthenticated.Timeout, "unauthenticated-timeout", defaultUnauthenticatedTimeout, "a connection is closed after this `time` without a valid credential; 0: never")
	f.BoolVar(&c.Dashboard, "dashboard", true, "serve the dashboard, pages for people, below /ui/ beside the API")
	f.BoolVar(&c.Insecure, "insecure", false, "let other machines reach it without TLS")
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
	f.StringVar(&c.LogFormat, "log-format", "text", "text or json")
	f.TextVar(&c.LogLevel, "log-level", slog.LevelInfo, "debug, info, warn or error")
	c.KeptOutput.addFlags(f)
	f.DurationVar(&c.CleanupTTL, "cleanup-ttl", retention.DefaultTTL, "how long destroyed leases, their events and deliveries are kept, at least 1h; costs are kept for ever")
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

// newLogger returns the log on standard error. The format was checked.
func newLogger(cmd *cobra.Command, format string, level slog.Leveler) *slog.Logger {
	o := &slog.HandlerOptions{Level: level}
	if format == "json" {
		return slog.New(api.LogHandler(slog.NewJSONHandler(cmd.ErrOrStderr(), o)))
	}
	return slog.New(api.LogHandler(slog.NewTextHandler(cmd.ErrOrStderr(), o)))
}
