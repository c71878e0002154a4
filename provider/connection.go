package provider

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"sync"
	"time"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/driver"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/executor/cloudflare/deploy"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/executor/docker"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/host"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/image"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/image/registry"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/leasing"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/ledger"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/ledger/location"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/pricing"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/seal"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/service"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/snapshotstore"
	"github.com/sandbox-lease/terraform-provider-sandbox/provider/configured"
	"github.com/sandbox-lease/terraform-provider-sandbox/reconciler/client"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// openTimeout bounds the first connection to the ledger or reconciler.
const openTimeout = time.Minute

// connection opens each thing that a configuration names once, on first use. It does not remember a failure: the next
// caller tries again.
type connection struct {
	settings settings
	books    map[sandbox.Backend]sandbox.PriceBook
	version  string
	log      *slog.Logger

	mu      sync.Mutex // guards the fields below
	service *configured.Service
	prices  map[sandbox.Backend]sandbox.PriceBook // of the service
	engine  image.Engine
	account *deploy.Deployer // for its registry
	closers []io.Closer      // in opening order
}

// Service returns the lease service: the reconciler's, or one in this process.
func (c *connection) Service(ctx context.Context) (configured.Service, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.service != nil {
		return *c.service, nil
	}
	if err := known("the lease service", c.settings.serviceUnknown); err != nil {
		return configured.Service{}, err
	}
	ctx, cancel := context.WithTimeout(ctx, openTimeout)
	defer cancel()
	svc, closers, err := c.connect(ctx)
	if err != nil {
		return configured.Service{}, err
	}
	info, err := svc.Ledger(ctx)
	if c.settings.remote && sandbox.CodeOf(err) == sandbox.NotFound {
		err = sandbox.Errorf(sandbox.Invalid, "reconciler %s: %w: check the URL, which must not end in /v1 or another path "+
			"of the API", c.settings.reconcilerURL, err)
	}
	if err == nil {
		err = c.checkPriceBook(info)
	}
	if err != nil {
		return configured.Service{}, errors.Join(err, closeAll(closers))
	}
	c.service, c.prices = &configured.Service{Service: svc, LedgerID: info.ID}, info.PriceBooks
	c.closers = append(c.closers, closers...)
	return *c.service, nil
}

// checkPriceBook refuses a configured price book that differs from the reconciler's.
func (c *connection) checkPriceBook(info sandbox.LedgerInfo) error {
	charged, ok := info.PriceBooks[sandbox.Docker]
	if !c.settings.remote || c.settings.priceBook == "" || !ok || charged == c.books[sandbox.Docker] {
		return nil
	}
	charges := fmt.Sprintf("charges by %q as of %s", charged.Name, charged.AsOf)
	if charged == pricing.Free() {
		charges = "has no price book for Docker and charges nothing"
	}
	return sandbox.Errorf(sandbox.Invalid, "price_book of the provider's docker block, %s, is %q as of %s, and "+
		"reconciler %s %s: an estimate would not be what is charged. Remove price_book, since estimates use the "+
		"reconciler's prices, or start the reconciler with --docker-price-book and this file", c.settings.priceBook,
		c.books[sandbox.Docker].Name, c.books[sandbox.Docker].AsOf, c.settings.reconcilerURL, charges)
}

// Prices returns the prices for estimates: the reconciler's, or, without a reconciler, the configured ones, for which
// it does not connect. They are nil while the configuration is unknown.
func (c *connection) Prices(ctx context.Context) (map[sandbox.Backend]sandbox.PriceBook, error) {
	switch {
	case !c.settings.remote:
		return c.books, nil
	case len(c.settings.serviceUnknown) > 0:
		return nil, nil
	}
	if _, err := c.Service(ctx); err != nil {
		return nil, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.prices, nil
}

func (c *connection) connect(ctx context.Context) (service.Service, []io.Closer, error) {
	if c.settings.reconcilerURL == "" {
		return c.embed(ctx)
	}
	svc, err := client.New(client.Config{
		URL: c.settings.reconcilerURL, Token: c.settings.token, Logger: c.log,
		TLS: c.settings.transport.tls, Proxy: c.settings.transport.proxy,
		UserAgent: "terraform-provider-sandbox/" + c.version,
	})
	return svc, nil, err
}

// embed runs the service in this process, on the embedded ledger.
func (c *connection) embed(ctx context.Context) (_ service.Service, closers []io.Closer, err error) {
	defer func() {
		if err != nil {
			err, closers = errors.Join(err, closeAll(closers)), nil
		}
	}()
	executor, err := docker.New(docker.Config{
		Host: c.settings.dockerHost, Context: c.settings.dockerContext, NetworkPool: c.settings.networkPool, Logger: c.log,
		Logins: registry.New(nil),
	})
	if err != nil {
		return nil, closers, err
	}
	closers = append(closers, executor)
	store, err := ledger.Open(ctx, c.settings.ledgerURL, ledger.Options{Logger: c.log})
	if err != nil {
		return nil, closers, err
	}
	closers = append(closers, store)
	// The planning process has these variables anyway. Blocked variables stay blocked.
	machine, err := host.New(host.Config{Variables: []string{"*"}})
	if err != nil {
		return nil, closers, err
	}
	var keys *seal.Keys
	if file := location.SecretKeyFile(c.settings.ledgerURL); file != "" {
		keys = seal.InFile(file, true)
	}
	executors := []driver.Executor{executor}
	if c.settings.cloudflare.AccountID != "" {
		c.settings.cloudflare.Logger, c.settings.cloudflare.Engine = c.log, c.Engine
		account, err := deploy.NewExecutor(c.settings.cloudflare, keys)
		if err != nil {
			return nil, closers, err
		}
		executors, closers = append(executors, account), append(closers, account)
	}
	config := leasing.Config{
		Store: store, Executors: executors, PriceBooks: c.books, Keys: keys, Host: machine, Logger: c.log, Version: c.version,
	}
	if c.settings.snapshotURL != "" {
		states, err := snapshotstore.Open(ctx, c.settings.snapshotURL)
		if err != nil {
			return nil, closers, err
		}
		closers = append(closers, states)
		config.Objects = states
	}
	leases, err := leasing.New(config)
	if err != nil {
		return nil, closers, err
	}
	c.endOverdue(ctx, leases)
	return leases, append(closers, leases), nil
}

// endTimeout bounds the removal of overdue sandboxes. A removal that takes longer goes on, or the next run tries it
// again.
const endTimeout = 30 * time.Second

// endOverdue removes overdue sandboxes, which a reconciler does on time. So no sandbox outlives its lease past the next
// run of Terraform.
func (c *connection) endOverdue(ctx context.Context, leases *leasing.Service) {
	ctx, cancel := context.WithTimeout(ctx, endTimeout)
	defer cancel()
	if err := leases.EndOverdue(ctx); err != nil {
		c.log.WarnContext(ctx, "sandboxes of ended leases could not be removed; the next run tries it again", "error", err)
	}
}

// Engine returns the Docker engine that builds images.
func (c *connection) Engine() (image.Engine, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.engine != nil {
		return c.engine, nil
	}
	if err := known("the Docker engine", c.settings.engineUnknown); err != nil {
		return nil, err
	}
	engine, err := docker.NewClient(docker.Config{Host: c.settings.dockerHost, Context: c.settings.dockerContext})
	if err != nil {
		return nil, err
	}
	c.engine = engine
	c.closers = append(c.closers, engine)
	return engine, nil
}

// Registry returns the Cloudflare account's registry, or nil if no account is configured or it is still unknown.
func (c *connection) Registry() (configured.Registry, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.settings.cloudflare.AccountID == "" || c.settings.cloudflare.Token == "" {
		return nil, nil
	}
	if c.account == nil {
		account, err := deploy.New(c.settings.cloudflare)
		if err != nil {
			return nil, err
		}
		c.account = account
		c.closers = append(c.closers, account)
	}
	return c.account.Registry(), nil
}

// Close closes the open connections in reverse order.
func (c *connection) Close() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	err := closeAll(c.closers)
	c.service, c.engine, c.account, c.closers = nil, nil, nil, nil
	return err
}

func closeAll(closers []io.Closer) error {
	var errs []error
	for i := len(closers) - 1; i >= 0; i-- {
		errs = append(errs, closers[i].Close())
	}
	return errors.Join(errs...)
}
