package daemon

import (
	"log/slog"
	"time"

	"github.com/spf13/pflag"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/executor/docker/networks"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/output"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/retention"
	"github.com/sandbox-lease/terraform-provider-sandbox/reconciler"
	"github.com/sandbox-lease/terraform-provider-sandbox/reconciler/cli/flags"
	"github.com/sandbox-lease/terraform-provider-sandbox/reconciler/oidc"
)

// Default limits. An apply of 50 leases at once takes about 150 requests. A thousand agents that each run a command
// every two seconds take 500 requests a second. A faulty client in a tight loop sends thousands.
const (
	defaultPerToken   = 500
	defaultPerAddress = 1000
	defaultFailures   = 60
	// A connection is unauthenticated for a few milliseconds, until its first request. An idle one takes about 20 KB.
	defaultUnauthenticated           = 4096
	defaultUnauthenticatedPerAddress = 1024
	defaultUnauthenticatedTimeout    = 30 * time.Second
)

// addFlags adds a flag for each setting.
func (s *settings) addFlags(f *pflag.FlagSet) {
	f.String(flagConfig, "", "YAML `file` of settings, named like these flags")
	f.StringVar(&s.Listen, "listen", "127.0.0.1:8787",
		"`address` of the HTTP API, or unix:///path of a socket for its owner and group")
	f.StringVar(&s.TLSCert, "tls-cert", "",
		"PEM `file` of the server's certificate and its intermediates (default: no TLS)")
	f.StringVar(&s.TLSKey, "tls-key", "", "PEM `file` of the certificate's private key")
	flags.List(f, &s.TrustedProxies, "trusted-proxy", nil, "`network` of trusted proxies, such as 10.0.0.0/8: their "+
		"X-Forwarded-For and X-Forwarded-Proto headers are used (default: none; may be repeated)")
	f.Float64Var(&s.Limits.PerToken, "rate-limit-token", defaultPerToken,
		"`requests` a second with one token, excluding conditions; allows a burst of 2 s; 0: no limit")
	f.Float64Var(&s.Limits.PerAddress, "rate-limit-address", defaultPerAddress,
		"`requests` a second from one address, excluding conditions; allows a burst of 2 s; 0: no limit")
	f.IntVar(&s.Limits.Failures, "auth-failures", defaultFailures,
		"failed `attempts` to authenticate per minute and address; more are rate limited; 0: no limit")
	f.IntVar(&s.Unauthenticated.Total, "unauthenticated-connections", defaultUnauthenticated, "open `connections` "+
		"without a valid credential; one more closes the oldest of the address with the most; 0: no limit")
	f.IntVar(&s.Unauthenticated.PerAddress, "unauthenticated-connections-address", defaultUnauthenticatedPerAddress,
		"open `connections` per address (IPv6: per /64) without a valid credential, excluding trusted proxies; "+
			"one more closes the oldest; 0: no limit")
	f.DurationVar(&s.Unauthenticated.Timeout, "unauthenticated-timeout", defaultUnauthenticatedTimeout,
		"close a connection after this `time` without a valid credential; 0: never")
	f.BoolVar(&s.Dashboard, "dashboard", true, "serve the web dashboard under /ui/")
	addOIDCFlags(f, &s.OIDC)
	f.BoolVar(&s.Insecure, "insecure", false, "serve other machines without TLS")
	f.StringVar(&s.LedgerURL, "ledger", "",
		"URL of the ledger, such as sqlite:///absolute/path/ledger.db or postgres://user@host/database")
	f.StringVar(&s.SnapshotURL, "state-url", "", "bucket for snapshots of /data, such as file:///absolute/path or "+
		"s3://name?region=... (default: a directory beside a SQLite ledger; none for PostgreSQL)")
	f.StringVar(&s.TokenFile, "token-file", "", "`file` of bearer tokens, in addition to those in the ledger; a line is "+
		"name token [environments=glob,...] [scopes=scope,...] [not_after=time]")
	f.StringVar(&s.SecretFile, "webhook-secret-file", "",
		"`file` of webhook secrets; a line is whsec_... [not_after=time]")
	f.StringVar(&s.SecretKeyFile, "secret-key-file", "", "`file` of the keys that encrypt the secrets of sandboxes, "+
		"the same for every reconciler of a ledger (default: beside a SQLite ledger)")
	flags.List(f, &s.Host.Directories, "mount-allow", nil,
		"`directory` of this machine for mounts, copies and Git workspaces of environments, recursively (default: none)")
	flags.List(f, &s.Host.Variables, "env-allow", nil,
		"`variable` of this process that environments may pass to sandboxes (default: none)")
	flags.List(f, &s.Workspaces.Allow, "workspace-allow", nil, "`host` that Git workspaces and archives may be "+
		"fetched from, such as git.example.com or git.example.com:8443; *.example.com: subdomains; ssh://host: with "+
		"ssh; http://host: without TLS (default: none)")
	f.StringVar(&s.Workspaces.KnownHosts, "workspace-known-hosts", "",
		"`file` with the keys of ssh servers, as ~/.ssh/known_hosts (default: only known_hosts of workspaces)")
	f.StringVar(&s.Workspaces.Dir, "workspace-dir", "",
		"`directory` of the mirrors of Git workspaces and of archives, a cache (default: beside a SQLite ledger)")
	f.StringVar(&s.Workspaces.Proxy, "workspace-proxy", "",
		"`URL` of an HTTP proxy that fetches and pushes of Git workspaces go through, not with ssh (default: none)")
	f.StringVar(&s.Workspaces.CAFile, "workspace-ca-file", "",
		"`file` of certificates of Git servers, beside those of this machine (default: none)")
	f.StringVar(&s.Docker.Host, "docker-host", "",
		"address of the Docker Engine (default: DOCKER_HOST, then the current docker context)")
	f.StringVar(&s.Docker.Context, "docker-context", "", "docker context to use")
	f.TextVar(&s.Docker.NetworkPool, "network-pool", networks.DefaultPool,
		"unused IPv4 range, /12 to /28; each sandbox with a full network gets a /28 from it")
	f.StringVar(&s.registryLogins, "registry-logins", "", "`file` of logins for registries that images are pulled from, "+
		"as docker login writes it (default: none, so that only public images can be pulled)")
	addCloudflareFlags(f, &s.Cloudflare)
	s.gateway.add(f, &s.Docker.Gateway)
	f.StringVar(&s.DockerPriceBook, "docker-price-book", "",
		"JSON file of the prices of sandboxes on Docker (default: free)")
	f.StringVar(&s.logFormat, "log-format", "text", "text or json")
	f.TextVar(&s.logLevel, "log-level", slog.LevelInfo, "debug, info, warn or error")
	addKeptOutputFlags(f, &s.KeptOutput)
	f.DurationVar(&s.CleanupTTL, "cleanup-ttl", retention.DefaultTTL,
		"how long to keep destroyed leases, their events and deliveries, at least 1h; costs are kept forever")
}

// addOIDCFlags adds the settings of login at the dashboard by OpenID Connect.
func addOIDCFlags(f *pflag.FlagSet, to *oidc.Config) {
	f.StringVar(&to.Issuer, "oidc-issuer", "",
		"`URL` of an OpenID Connect provider that users of the dashboard log in at, besides tokens (default: none)")
	f.StringVar(&to.ClientID, "oidc-client-id", "", "`id` of this client at the provider")
	f.StringVar(&to.SecretFile, "oidc-client-secret-file", "",
		"`file` with the client secret, the same for every reconciler behind an address")
	f.StringVar(&to.RedirectURL, "oidc-redirect-url", "",
		"`URL` that the provider redirects to: the address of the dashboard with the path "+oidc.CallbackPath)
	f.StringVar(&to.GroupsClaim, "oidc-groups-claim", "groups", "`claim` of the ID token with the groups of the user")
	flags.List(f, &to.Scopes, "oidc-scope", []string{"email"},
		"`scope` to request besides openid, such as groups for Dex (may be repeated)")
	flags.List(f, &to.Roles, "oidc-role", nil, "`GROUP=ROLE`: gives GROUP a role: read, lease or admin; a user with "+
		"several has the strongest (may be repeated)")
}

// addKeptOutputFlags adds the limits of stored output.
func addKeptOutputFlags(f *pflag.FlagSet, to *reconciler.KeptOutput) {
	f.Int64Var(&to.Lease, "kept-output-lease", output.DefaultKeptLease>>20,
		"`MiB` of output of commands and sessions to keep per lease; the oldest is dropped first")
	f.Int64Var(&to.Environment, "kept-output-environment", output.DefaultKeptEnvironment>>20,
		"`MiB` of output to keep per environment; the oldest is dropped first")
	f.Int64Var(&to.Ledger, "kept-output", output.DefaultKeptLedger>>20,
		"`MiB` of output to keep in total; the oldest is dropped first")
}
