// Package reconciler is the daemon: it wires the ledger, the lease engine, its loop and the HTTP
// API together, and takes them down in order.
package reconciler

import (
	"cmp"
	"context"
	"errors"
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
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/pricing"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/retention"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/seal"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/state"
	"github.com/sandbox-lease/terraform-provider-sandbox/reconciler/access"
	"github.com/sandbox-lease/terraform-provider-sandbox/reconciler/api"
	"github.com/sandbox-lease/terraform-provider-sandbox/reconciler/dashboard"
	"github.com/sandbox-lease/terraform-provider-sandbox/reconciler/internal/connlimit"
	"github.com/sandbox-lease/terraform-provider-sandbox/reconciler/loop"
	"github.com/sandbox-lease/terraform-provider-sandbox/reconciler/metrics"
	"github.com/sandbox-lease/terraform-provider-sandbox/reconciler/webhook"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// Config is what a reconciler is told by its operator.
type Config struct {
	// Listen is the address of the HTTP API: host:port, or unix:///path of a socket for this machine's programs.
	Listen string
	// TLSCert and TLSKey are PEM files with the server's certificate, with those between it and its authority,
	// and its key. They are read again when they change. Empty means that TLS is a proxy's business.
	TLSCert, TLSKey string
	// TrustedProxies are networks of proxies whose X-Forwarded-For is believed.
	TrustedProxies []string
	// Limits bound what callers may ask for.
	Limits api.Limits
	// Unauthenticated bounds connections whose peers have not shown a valid credential. The addresses of
	// TrustedProxies are Shared.
	Unauthenticated connlimit.Limits
	// Insecure lets other machines reach the API in clear.
	Insecure bool
	// LedgerURL is where the ledger is; see ledger.Open.
	LedgerURL string
	// StateURL is the bucket for the state of sandboxes; see state.Open. Empty means
	// ledger.DefaultStateURL, and where that is empty no environment can keep state.
	StateURL string
	// TokenFile holds tokens of clients beside those of the ledger, see webhook.LoadTokens; empty means none.
	// SecretFile holds the secrets of game servers, see webhook.LoadSecrets.
	TokenFile, SecretFile string
	// SecretKeyFile holds the keys that secrets of sandboxes are kept under; see package seal. Empty
	// means beside a ledger that is a file, where it is made when it is needed, and else none.
	SecretKeyFile string
	// Host is what sandboxes may have of this machine.
	Host host.Config
	// Docker names the engine.
	Docker docker.Config
	// Cloudflare is the account that environments may have sandboxes on; without an AccountID they may not.
	Cloudflare deploy.Config
	// DockerPriceBook is a file with Docker's prices; empty means that Docker is free.
	DockerPriceBook string
	// Dashboard serves pages for people beside the API.
	Dashboard bool
	// CleanupTTL is how long what was destroyed is kept; zero means retention.DefaultTTL.
	CleanupTTL time.Duration
	// KeptOutput bounds the output of commands and sessions that is kept, in MiB.
	KeptOutput KeptOutput
	// LogFormat and LogLevel are what commands make Logger of.
	LogFormat string
	LogLevel  slog.Level
	Version   string
	Logger    *slog.Logger
	// Reloads bring later settings, of which tokens, webhook secrets and the certificate are taken over.
	Reloads <-chan Config `json:"-"`
}

// validate checks what can be wrong before anything is opened. Errors: Invalid.
func (c *Config) validate() error {
	if c.LogFormat != "" && c.LogFormat != "text" && c.LogFormat != "json" {
		return sandbox.Errorf(sandbox.Invalid, "--log-format must be text or json, not %q", c.LogFormat)
	}
	if c.CleanupTTL < retention.MinTTL {
		return sandbox.Errorf(sandbox.Invalid, "--cleanup-ttl %s is too short: what was destroyed is kept for at least %s, so that clients can still learn what became of it", c.CleanupTTL, retention.MinTTL)
	}
	if err := c.KeptOutput.validate(); err != nil {
		return err
	}
	return c.checkListen()
}

const (
	// ledgerReserve is the room on the disk of an embedded ledger that ends leases when the disk is full: each takes
	// some KiB.
	ledgerReserve = 8 << 20
	// shutdownTimeout is how long requests under way are waited for.
	shutdownTimeout = 10 * time.Second
	// headerTimeout and maxHeader bound what a client may send before it is known.
	headerTimeout = 10 * time.Second
	maxHeader     = 32 << 10
	// idleTimeout is how long a connection may be without a request. Clients and proxies that keep connections for
	// longer open another one.
	idleTimeout = 2 * time.Minute
)

// Serve runs a reconciler until ctx ends. ready, unless nil, is called with the address once requests
// are answered. What was begun is finished or left to the next start: nothing is lost by killing it.
func Serve(ctx context.Context, c Config, ready func(address string)) (err error) {
	c.CleanupTTL = cmp.Or(c.CleanupTTL, retention.DefaultTTL)
	if err := c.validate(); err != nil {
		return err
	}
	given, err := c.load()
	if err != nil {
		return err
	}
	listener, err := c.listen(ctx)
	if err != nil {
		return err
	}
	defer func() { _ = listener.Close() }() // closed by the server already when it came to serve
	c.Unauthenticated.Shared = given.isProxy
	listener = connlimit.Listen(listener, c.Unauthenticated)

	keys := c.keys()
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
	settings := leasing.Config{
		Observer: counts, Store: store, Executors: executors, Keys: keys, Host: given.machine, Version: c.Version, Logger: c.Logger,
		KeptOutput: c.KeptOutput.bounds(),
		PriceBooks: map[sandbox.Backend]sandbox.PriceBook{sandbox.Docker: given.book, sandbox.Cloudflare: pricing.Cloudflare()},
	}
	if url := cmp.Or(c.StateURL, ledger.DefaultStateURL(c.LedgerURL)); url != "" {
		states, openErr := state.Open(ctx, url)
		if openErr != nil {
			return openErr
		}
		defer func() { err = errors.Join(err, states.Close()) }()
		settings.State = states
	}
	engine, err := leasing.New(settings)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, engine.Close()) }()
	if n, err := engine.ResealSecrets(ctx); err != nil {
		c.Logger.Error("reconciler: sealing secrets under the first key; sandboxes that need those that cannot be opened will wait", "error", err)
	} else if n > 0 {
		c.Logger.Info("reconciler: sealed secrets under the first key; older keys may go once every reconciler has it", "secrets", n)
	}
	registry := access.New(access.Config{Store: store, Logger: c.Logger})
	stopRegistry := running(ctx, registry.Run)
	defer stopRegistry()
	handler, err := api.New(api.Config{
		Service: engine, Access: registry, Tokens: given.tokens, Secrets: given.secrets, TrustedProxies: given.proxies, Limits: c.Limits, Version: c.Version, Ready: engine.Ready, Logger: c.Logger,
		Metrics: counts.Handler(engine, c.Logger), Observer: counts,
	})
	if err != nil {
		return err
	}
	if c.Dashboard {
		stopPages, err := c.servePages(ctx, handler, engine)
		if err != nil {
			return err
		}
		defer stopPages()
	}
	stopReloads := running(ctx, func(ctx context.Context) { c.takeOver(ctx, handler, given) })
	defer stopReloads()
	return run(ctx, c, engine, counts, handler, listener, given.certificate, ready)
}

// verify looks for damage of the ledger, which is a fault from then on.
func (c Config) verify(ctx context.Context, store *ledger.Store) {
	began := time.Now()
	switch err := store.Verify(ctx); {
	case err == nil:
		c.Logger.Info("reconciler: the ledger is whole", "checked_in", time.Since(began))
	case ctx.Err() == nil:
		c.Logger.Error("reconciler: checking the ledger", "error", err)
	}
}

// servePages adds the dashboard to what is served. Its end is for the caller to call.
func (c Config) servePages(ctx context.Context, handler api.Handler, engine *leasing.Engine) (stop func(), err error) {
	pages, err := dashboard.New(dashboard.Config{Gate: handler.Gate(), Events: engine, Logger: c.Logger})
	if err != nil {
		return nil, err
	}
	pages.Mount(handler)
	return running(ctx, pages.Run), nil
}

// given is what the operator wrote down in files.
type given struct {
	tokens      webhook.Tokens
	secrets     webhook.Secrets
	book        sandbox.PriceBook
	machine     *host.Host
	proxies     []net.IPNet
	certificate *certificate // nil without TLS
	// watched are the files of tokens and webhook secrets, as they were before they were read.
	watched *watch
}

// isProxy reports whether an address is that of a proxy which is trusted.
func (g *given) isProxy(a netip.Addr) bool {
	return slices.ContainsFunc(g.proxies, func(network net.IPNet) bool { return network.Contains(a.AsSlice()) })
}

// load reads what the operator wrote down. Errors: Invalid.
func (c Config) load() (g given, err error) {
	g.watched = watchFiles(c.TokenFile, c.SecretFile)
	if g.tokens, err = c.tokens(); err != nil {
		return g, err
	}
	if g.secrets, err = webhook.LoadSecrets(c.SecretFile); err != nil {
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
	if c.TLSCert != "" {
		g.certificate, err = loadCertificate(c.TLSCert, c.TLSKey, c.Logger)
	}
	return g, err
}

// takeOver takes over of later settings, and of changed files of credentials, what can be, until ctx ends. What
// cannot be read leaves what there was.
func (c Config) takeOver(ctx context.Context, handler api.Handler, g given) {
	tick := time.NewTicker(watchEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			if g.watched.changed() {
				c.accept(handler)
			}
			continue
		case next := <-c.Reloads:
			c.TokenFile, c.SecretFile = next.TokenFile, next.SecretFile
		}
		g.watched = watchFiles(c.TokenFile, c.SecretFile)
		c.accept(handler)
		if g.certificate == nil {
			continue
		}
		if err := g.certificate.reload(); err != nil {
			c.Logger.Error("reconciler: the certificate stays as it was", "error", err)
		} else {
			c.Logger.Info("reconciler: read the certificate again", "file", g.certificate.certFile)
		}
	}
}

// accept reads the files of credentials again.
func (c Config) accept(handler api.Handler) {
	tokens, err := c.tokens()
	secrets, err2 := webhook.LoadSecrets(c.SecretFile)
	if err := errors.Join(err, err2); err != nil {
		c.Logger.Error("reconciler: tokens and webhook secrets stay as they were", "error", err)
		return
	}
	handler.Accept(tokens, secrets)
	c.Logger.Info("reconciler: read tokens and webhook secrets again", "tokens", len(tokens), "secrets", len(secrets))
}

// tokens returns those that the operator wrote down. Nothing needs to be: the ledger has tokens too.
func (c Config) tokens() (webhook.Tokens, error) {
	if c.TokenFile == "" {
		return nil, nil
	}
	return webhook.LoadTokens(c.TokenFile)
}

// running runs a worker until stop is called, which waits for its end.
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

// executors returns those of the backends there are, also beside an error. Their owner closes them.
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

// keys returns what secrets are kept under, nil for none.
func (c Config) keys() *seal.Keys {
	if c.SecretKeyFile != "" {
		return seal.InFile(c.SecretKeyFile, false)
	}
	if file := ledger.SecretKeyFile(c.LedgerURL); file != "" {
		return seal.InFile(file, true)
	}
	return nil
}

// run serves requests and works on what is due, until ctx ends or one of them fails.
func run(ctx context.Context, c Config, engine *leasing.Engine, counts *metrics.Metrics, handler http.Handler, listener net.Listener, cert *certificate, ready func(string)) error {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	// Streams end with the requests' base context, so that a shutdown does not wait for them.
	streams, endStreams := context.WithCancel(context.WithoutCancel(ctx))
	defer endStreams()
	server := &http.Server{
		Handler: handler, ReadHeaderTimeout: headerTimeout, IdleTimeout: idleTimeout, MaxHeaderBytes: maxHeader,
		BaseContext: func(net.Listener) context.Context { return streams },
		ConnContext: connlimit.ConnContext,
		ErrorLog:    slog.NewLogLogger(c.Logger.Handler(), slog.LevelDebug),
	}
	looped := make(chan struct{})
	go func() {
		defer close(looped)
		_ = loop.New(engine, loop.Config{CleanupTTL: c.CleanupTTL, Observer: counts, Logger: c.Logger}).Run(ctx) // ends with ctx, and only so
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

	address := listener.Addr().String()
	c.Logger.Info("reconciler: serving", "address", address, "ledger", ledger.RedactURL(c.LedgerURL), "version", c.Version)
	if ready != nil {
		ready(address)
	}
	var err error
	select {
	case <-ctx.Done():
		c.Logger.Info("reconciler: stopping")
	case err = <-served:
	}
	stop()
	bounded, cancel := context.WithTimeout(context.WithoutCancel(ctx), shutdownTimeout)
	defer cancel()
	time.AfterFunc(shutdownTimeout/2, endStreams)
	err = errors.Join(err, server.Shutdown(bounded))
	<-looped
	return err
}
