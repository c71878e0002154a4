// Package reconciler is the daemon. It connects the ledger, the lease service, its loop and the HTTP API, and shuts
// them down in order.
package reconciler

import (
	"cmp"
	"context"
	"errors"
	"io/fs"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"time"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/driver"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/executor/cloudflare/deploy"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/executor/docker"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/host"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/image"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/leasing"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/ledger"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/ledger/location"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/pricing"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/retention"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/seal"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/snapshotstore"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/workspace/gitmirror"
	"github.com/sandbox-lease/terraform-provider-sandbox/reconciler/access"
	"github.com/sandbox-lease/terraform-provider-sandbox/reconciler/api"
	"github.com/sandbox-lease/terraform-provider-sandbox/reconciler/dashboard"
	"github.com/sandbox-lease/terraform-provider-sandbox/reconciler/internal/connlimit"
	"github.com/sandbox-lease/terraform-provider-sandbox/reconciler/loop"
	"github.com/sandbox-lease/terraform-provider-sandbox/reconciler/metrics"
	"github.com/sandbox-lease/terraform-provider-sandbox/reconciler/oidc"
	"github.com/sandbox-lease/terraform-provider-sandbox/reconciler/webhook"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// Config holds the settings of a reconciler.
type Config struct {
	// Listen is the address of the HTTP API: host:port, or unix:///path of a socket for this machine's programs.
	Listen string
	// TLSCert and TLSKey are PEM files of the server's certificate with its intermediates, and of its key. The reconciler
	// reloads them when they change. Empty means no TLS.
	TLSCert, TLSKey string
	// TrustedProxies are networks of proxies whose X-Forwarded-For header is trusted.
	TrustedProxies []string
	// Limits are the rate limits of callers.
	Limits api.Limits
	// Unauthenticated limits connections without a valid credential. Serve sets Shared from TrustedProxies.
	Unauthenticated connlimit.Limits
	// Insecure serves other machines in plain text.
	Insecure bool
	// LedgerURL is the URL of the ledger; see ledger.Open.
	LedgerURL string
	// SnapshotURL is the bucket for snapshots of /data; see snapshotstore.Open. Empty means location.SnapshotURL. If that
	// is empty too, no environment can keep snapshots.
	SnapshotURL string
	// TokenFile holds tokens in addition to those of the ledger, see access.LoadTokens; empty means none. SecretFile
	// holds the webhook secrets of game servers, see access.LoadSecrets.
	TokenFile, SecretFile string
	// SecretKeyFile holds the keys that encrypt the secrets of sandboxes; see package seal. Empty means a file beside a
	// SQLite ledger, which is created when needed, and no keys for PostgreSQL.
	SecretKeyFile string
	// Host lists the resources of this machine that sandboxes may use.
	Host host.Config
	// Workspaces lists the hosts that workspaces may be fetched from, and where the mirrors are.
	Workspaces Workspaces
	// Docker configures the engine.
	Docker docker.Config
	// Cloudflare is the account for sandboxes on Cloudflare; without an AccountID, there are no such sandboxes.
	Cloudflare deploy.Config
	// DockerPriceBook is a file of the prices of Docker; empty means free.
	DockerPriceBook string
	// Dashboard serves the web dashboard.
	Dashboard bool
	// OIDC lets users log in at the dashboard, in addition to tokens.
	OIDC oidc.Config
	// CleanupTTL is how long destroyed leases are kept; zero means retention.DefaultTTL.
	CleanupTTL time.Duration
	// KeptOutput limits the stored output of commands and sessions.
	KeptOutput KeptOutput
	Version    string
	// Command is how a shell calls the commands of this program, for hints; empty means "sandbox".
	Command string
	Logger  *slog.Logger
	// Reloads delivers later settings. Serve reloads tokens, webhook secrets, the client secret and the roles of OpenID
	// Connect, and the certificate.
	Reloads <-chan Config `json:"-"`
}

// Validate checks the settings themselves. It opens no file and no connection. Errors: Invalid.
func (c *Config) Validate() error {
	if c.CleanupTTL < retention.MinTTL {
		return sandbox.Errorf(sandbox.Invalid, "--cleanup-ttl %s is too short: keep destroyed leases for at least %s, "+
			"so that clients can still read their outcome", c.CleanupTTL, retention.MinTTL)
	}
	if err := c.KeptOutput.validate(); err != nil {
		return err
	}
	if err := c.OIDC.Validate(); err != nil {
		return err
	}
	if c.OIDC.Enabled() && !c.Dashboard {
		return sandbox.Errorf(sandbox.Invalid, "--oidc-issuer needs --dashboard: users log in there")
	}
	return c.checkListen()
}

const (
	// ledgerReserve is disk space that a SQLite ledger reserves to end leases when the disk is full. Each needs a few
	// KiB.
	ledgerReserve = 8 << 20
	// headerTimeout and maxHeader limit the header of a request, which comes before authentication.
	headerTimeout = 10 * time.Second
	maxHeader     = 32 << 10
	// idleTimeout is how long a connection may be idle. Clients and proxies then open a new one.
	idleTimeout = 2 * time.Minute
)

// Serve runs a reconciler until ctx ends. It calls ready, unless nil, once it serves requests. Work in progress is
// finished or continues at the next start, so it is safe to kill the process.
func Serve(ctx context.Context, c Config, ready func(Started)) (err error) {
	c.CleanupTTL = cmp.Or(c.CleanupTTL, retention.DefaultTTL)
	if err := c.Validate(); err != nil {
		return err
	}
	files, err := c.load()
	if err != nil {
		return err
	}
	listener, err := c.listen(ctx)
	if err != nil {
		return err
	}
	defer func() { _ = listener.Close() }() // the server may have closed it
	c.Unauthenticated.Shared = files.isProxy
	listener = connlimit.Listen(listener, c.Unauthenticated)

	keys := c.Keys()
	executors, err := c.executors(keys)
	for _, x := range executors {
		defer func() { err = errors.Join(err, x.Close()) }()
	}
	if err != nil {
		return err
	}
	store, err := ledger.Open(ctx, c.LedgerURL, ledger.Options{Logger: c.Logger, Reserve: ledgerReserve})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, store.Close()) }()
	stopVerifying := running(ctx, func(ctx context.Context) { c.verify(ctx, store) })
	defer stopVerifying()
	counts := metrics.New(c.Version)
	counts.WatchLedger(store.Fault)
	settings := c.leaseSettings(files)
	settings.Store, settings.Executors, settings.Keys = store, executors, keys
	settings.Observer, settings.LLMObserver = counts, counts
	leases, closeLeases, err := c.openLeases(ctx, settings)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, closeLeases()) }()
	handler, stopAPI, err := c.openAPI(ctx, files, store, leases, counts)
	if err != nil {
		return err
	}
	defer stopAPI()
	introduction, err := c.started(listener.Addr().String(), store.ID(), files.certificate)
	if err != nil {
		return err
	}
	return run(ctx, c, leases, counts, handler, listener, files.certificate, func() {
		introduction.log(c.Logger)
		if ready != nil {
			ready(introduction)
		}
	})
}

// openLeases opens the lease service, with the bucket for snapshots if there is one, and encrypts secrets with the
// first key. The caller must call closeAll.
func (c Config) openLeases(ctx context.Context,
	settings leasing.Config) (leases *leasing.Service, closeAll func() error, err error) {
	closeSnapshots := func() error { return nil }
	if url := cmp.Or(c.SnapshotURL, location.SnapshotURL(c.LedgerURL)); url != "" {
		snapshots, err := snapshotstore.Open(ctx, url)
		if err != nil {
			return nil, nil, err
		}
		settings.Objects, closeSnapshots = snapshots, snapshots.Close
	}
	leases, err = leasing.New(settings)
	if err != nil {
		return nil, nil, errors.Join(err, closeSnapshots())
	}
	c.reseal(ctx, leases)
	return leases, func() error { return errors.Join(leases.Close(), closeSnapshots()) }, nil
}

// openAPI creates the HTTP API, with the dashboard if configured, and starts their background work. The caller must
// call stop.
func (c Config) openAPI(ctx context.Context, files loadedConfig, store *ledger.Store, leases *leasing.Service,
	counts *metrics.Metrics) (handler api.Handler, stop func(), err error) {
	var stops []func()
	stopAll := func() {
		for _, s := range slices.Backward(stops) {
			s()
		}
	}
	defer func() {
		if err != nil {
			stopAll()
		}
	}()
	registry := access.New(access.Config{Store: store, Logger: c.Logger})
	stops = append(stops, running(ctx, registry.Run))
	settings := c.api(files)
	settings.Service, settings.Connector, settings.Ready = leases, leases, leases.Ready
	settings.Access, settings.Observer, settings.Metrics = registry, counts, counts.Handler(leases, c.Logger)
	if files.provider != nil {
		settings.Users = files.provider
		stops = append(stops, running(ctx, files.provider.Run))
	}
	if handler, err = api.New(settings); err != nil {
		return handler, nil, err
	}
	if c.Dashboard {
		stopPages, err := c.servePages(ctx, handler, leases, files.provider)
		if err != nil {
			return handler, nil, err
		}
		stops = append(stops, stopPages)
	}
	stops = append(stops, running(ctx, func(ctx context.Context) { c.reload(ctx, handler, files) }))
	return handler, stopAll, nil
}

// leaseSettings returns the settings of the lease service, without what Serve opens for it.
func (c Config) leaseSettings(files loadedConfig) leasing.Config {
	return leasing.Config{
		Host:       files.machine,
		Mirrors:    files.mirrors,
		Version:    c.Version,
		Logger:     c.Logger,
		KeptOutput: c.KeptOutput.bounds(),
		PriceBooks: map[sandbox.Backend]sandbox.PriceBook{
			sandbox.Docker:     files.book,
			sandbox.Cloudflare: pricing.Cloudflare(),
		},
	}
}

// api returns the settings of the HTTP API, without what Serve opens for it.
func (c Config) api(files loadedConfig) api.Config {
	return api.Config{
		Tokens:         files.tokens,
		Secrets:        files.secrets,
		TrustedProxies: files.proxies,
		Limits:         c.Limits,
		Version:        c.Version,
		Logger:         c.Logger,
	}
}

// reseal encrypts secrets with the first key that are encrypted with another key.
func (c Config) reseal(ctx context.Context, leases *leasing.Service) {
	switch n, err := leases.ResealSecrets(ctx); {
	case err != nil:
		c.Logger.Error("reconciler: encrypting secrets with the first key; sandboxes wait for the secrets that "+
			"cannot be decrypted", "error", err)
	case n > 0:
		c.Logger.Info("reconciler: encrypted secrets with the first key; remove older keys once every reconciler has it",
			"secrets", n)
	}
}

// verify checks the ledger for damage. The store reports damage as a fault from then on.
func (c Config) verify(ctx context.Context, store *ledger.Store) {
	began := time.Now()
	switch err := store.Verify(ctx); {
	case err == nil:
		c.Logger.Info("reconciler: the ledger is intact", "checked_in", time.Since(began))
	case ctx.Err() == nil:
		c.Logger.Error("reconciler: checking the ledger", "error", err)
	}
}

// servePages mounts the dashboard. The caller must call stop.
func (c Config) servePages(ctx context.Context, handler api.Handler, leases *leasing.Service,
	provider *oidc.Provider) (stop func(), err error) {
	pages, err := dashboard.New(dashboard.Config{
		Gate: handler.Gate(), Provider: provider, Events: leases, Logger: c.Logger,
	})
	if err != nil {
		return nil, err
	}
	pages.Mount(handler)
	return running(ctx, pages.Run), nil
}

// loadedConfig is the content of the files that a Config names.
type loadedConfig struct {
	tokens      access.Tokens
	secrets     webhook.Secrets
	book        sandbox.PriceBook
	machine     *host.Host
	mirrors     *gitmirror.Store
	proxies     []net.IPNet
	certificate *certificate   // nil without TLS
	provider    *oidc.Provider // nil without OpenID Connect
	// watched are the files of tokens, webhook secrets and the client secret. The watch starts before they are read.
	watched *watch
}

// isProxy reports whether an address belongs to a trusted proxy.
func (g *loadedConfig) isProxy(a netip.Addr) bool {
	return slices.ContainsFunc(g.proxies, func(network net.IPNet) bool { return network.Contains(a.AsSlice()) })
}

// CheckFiles reads every file that the settings name: credentials, keys, prices and certificates. Errors: Invalid.
func (c Config) CheckFiles() error {
	if _, err := c.load(); err != nil {
		return err
	}
	file, create := c.keyFile()
	if file == "" {
		return nil
	}
	if _, err := seal.Count(file); err != nil && !(create && errors.Is(err, fs.ErrNotExist)) {
		return err
	}
	return nil
}

// load reads the files that the settings name. Errors: Invalid.
func (c Config) load() (g loadedConfig, err error) {
	g.watched = c.watchCredentials()
	if g.tokens, err = c.tokens(); err != nil {
		return g, err
	}
	if g.secrets, err = access.LoadSecrets(c.SecretFile); err != nil {
		return g, err
	}
	g.book = pricing.Free()
	if c.DockerPriceBook != "" {
		if g.book, err = pricing.Load(c.DockerPriceBook); err != nil {
			return g, sandbox.Errorf(sandbox.Invalid, "--docker-price-book: %w", err)
		}
	}
	if g.proxies, err = c.proxies(); err != nil {
		return g, err
	}
	if g.machine, err = host.New(c.Host); err != nil {
		return g, err
	}
	if g.mirrors, err = c.Workspaces.store(c.LedgerURL, g.machine); err != nil {
		return g, err
	}
	if c.OIDC.Enabled() {
		if g.provider, err = oidc.New(c.OIDC, nil, c.Logger); err != nil {
			return g, err
		}
	}
	if c.TLSCert != "" {
		g.certificate, err = loadCertificate(c.TLSCert, c.TLSKey, c.Logger)
	}
	return g, err
}

// watchCredentials starts to watch the credential files.
func (c Config) watchCredentials() *watch {
	return watchFiles(c.TokenFile, c.SecretFile, c.OIDC.SecretFile)
}

// reload applies later settings and changed credential files until ctx ends. If a file cannot be read, the old content
// stays in force.
func (c Config) reload(ctx context.Context, handler api.Handler, g loadedConfig) {
	tick := time.NewTicker(watchEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			if g.watched.changed() {
				c.accept(handler, g.provider)
			}
			continue
		case next := <-c.Reloads:
			c.TokenFile, c.SecretFile = next.TokenFile, next.SecretFile
			c.OIDC.SecretFile, c.OIDC.Roles = next.OIDC.SecretFile, next.OIDC.Roles
		}
		g.watched = c.watchCredentials()
		c.accept(handler, g.provider)
		if g.certificate == nil {
			continue
		}
		if err := g.certificate.reload(); err != nil {
			c.Logger.Error("reconciler: reloading the certificate failed; the old one stays in use", "error", err)
		} else {
			c.Logger.Info("reconciler: reloaded the certificate", "file", g.certificate.certFile)
		}
	}
}

// accept reloads the credential files, and the roles of OpenID Connect.
func (c Config) accept(handler api.Handler, provider *oidc.Provider) {
	if provider != nil {
		if err := provider.Reload(c.OIDC); err != nil {
			c.Logger.Error("reconciler: reloading the settings of OpenID Connect failed; the old ones stay in force",
				"error", err)
		}
	}
	tokens, err := c.tokens()
	secrets, err2 := access.LoadSecrets(c.SecretFile)
	if err := errors.Join(err, err2); err != nil {
		c.Logger.Error("reconciler: reloading tokens and webhook secrets failed; the old ones stay in force", "error", err)
		return
	}
	handler.Accept(tokens, secrets)
	c.Logger.Info("reconciler: reloaded tokens and webhook secrets", "tokens", len(tokens), "secrets", len(secrets))
}

// tokens reads the token file. The file is optional, because the ledger has tokens too.
func (c Config) tokens() (access.Tokens, error) {
	if c.TokenFile == "" {
		return nil, nil
	}
	return access.LoadTokens(c.TokenFile)
}

// running starts a worker. stop ends it and waits for it.
func running(ctx context.Context, work func(context.Context)) (stop func()) {
	ctx, cancel := context.WithCancel(ctx)
	done := make(chan struct{})
	go func() {
		defer close(done)
		work(ctx)
	}()
	return func() {
		cancel()
		<-done
	}
}

// executors returns the executors of the configured backends. The caller closes them, even after an error.
func (c Config) executors(keys *seal.Keys) (all []driver.Executor, err error) {
	local, err := docker.New(c.Docker)
	if err != nil {
		return nil, err
	}
	all = append(all, local)
	if c.Cloudflare.AccountID == "" {
		return all, nil
	}
	engine, err := docker.NewClient(c.Docker)
	if err != nil {
		return all, err
	}
	c.Cloudflare.Engine = func() (image.Engine, error) { return engine, nil }
	account, err := deploy.NewExecutor(c.Cloudflare, keys, engine)
	if err != nil {
		return all, errors.Join(err, engine.Close())
	}
	return append(all, account), nil
}

// Keys returns the keys that encrypt secrets, nil for none.
func (c Config) Keys() *seal.Keys {
	if file, create := c.keyFile(); file != "" {
		return seal.InFile(file, create)
	}
	return nil
}

// keyFile returns the file of the keys, "" for none. create says that a missing file is created when needed.
func (c Config) keyFile() (file string, create bool) {
	if c.SecretKeyFile != "" {
		return c.SecretKeyFile, false
	}
	return location.SecretKeyFile(c.LedgerURL), true
}

// run serves requests and runs the loop until ctx ends or serving fails.
func run(ctx context.Context, c Config, leases *leasing.Service, counts *metrics.Metrics, handler http.Handler,
	listener net.Listener, cert *certificate, ready func()) error {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	server := newServer(ctx, handler, c.Logger)
	looped := make(chan struct{})
	go func() {
		defer close(looped)
		// The loop ends only with ctx.
		_ = loop.New(leases, loop.Config{CleanupTTL: c.CleanupTTL, Observer: counts, Logger: c.Logger}).Run(ctx)
	}()
	served := make(chan error, 1)
	go func() {
		if cert != nil {
			server.TLSConfig = cert.config()
			served <- server.ServeTLS(listener, "", "")
			return
		}
		served <- server.Serve(listener)
	}()

	ready()
	var err error
	select {
	case <-ctx.Done():
		c.Logger.Info("reconciler: stopping", "cause", context.Cause(ctx)) // names the signal
	case err = <-served:
	}
	stop()
	err = errors.Join(err, server.shutDown())
	<-looped
	return err
}
