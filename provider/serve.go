package provider

import (
	"context"
	"errors"
	"os"
	"sync"
	"time"

	"github.com/hashicorp/terraform-plugin-framework/provider"
	"github.com/hashicorp/terraform-plugin-framework/providerserver"

	"github.com/sandbox-lease/terraform-provider-sandbox/provider/journal"
	"github.com/sandbox-lease/terraform-provider-sandbox/provider/tune"
)

// Serve serves Terraform until it stops the plugin, then closes all connections. With debug, it prints how to attach
// Terraform to this process.
func Serve(ctx context.Context, version string, debug bool) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	if !debug {
		if err := tune.Process(); err != nil {
			return err
		}
	}
	creating := journalOf(debug, os.Getenv)
	var (
		mu   sync.Mutex
		made []*Provider
	)
	factory := func() provider.Provider {
		p := &Provider{version: version, getenv: os.Getenv, journal: creating}
		mu.Lock()
		defer mu.Unlock()
		made = append(made, p)
		return p
	}
	closeAll := func() error {
		mu.Lock()
		defer mu.Unlock()
		var errs []error
		for _, p := range made {
			errs = append(errs, p.Close())
		}
		made = nil
		return errors.Join(errs...)
	}
	if !debug { // a killed Terraform does not stop its plugins
		go func() {
			if orphaned(ctx, os.Getppid, time.Second) {
				_ = closeAll() // Terraform is gone, so nothing reads the error
				os.Exit(1)
			}
		}()
	}
	err := providerserver.Serve(ctx, factory, providerserver.ServeOpts{Address: Address, Debug: debug})
	return errors.Join(err, closeAll())
}

// journalOf returns the journal of Terraform's working directory, nil if this process may run in another one.
func journalOf(debug bool, getenv func(string) string) *journal.Journal {
	if debug {
		return nil
	}
	return journal.In(journal.Dir(getenv))
}

// orphaned waits until the parent process has ended. It checks at each pace. It returns false if ctx ends first.
func orphaned(ctx context.Context, parent func() int, pace time.Duration) bool {
	began := parent()
	tick := time.NewTicker(pace)
	defer tick.Stop()
	for parent() == began {
		select {
		case <-ctx.Done():
			return false
		case <-tick.C:
		}
	}
	return true
}
