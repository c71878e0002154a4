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

// Serve answers Terraform until it ends the plugin, then closes what was opened meanwhile. With
// debug it prints how to attach Terraform to this process instead.
func Serve(ctx context.Context, version string, debug bool) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	if !debug {
		if err := tune.Process(); err != nil {
			return err
		}
	}
	creating := journal.In(journal.Dir(os.Getenv))
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
	if !debug { // Terraform that is killed tells no plugin to end
		go func() {
			if orphaned(ctx, os.Getppid, time.Second) {
				_ = closeAll() // Terraform is gone: an error has no reader
				os.Exit(1)
			}
		}()
	}
	err := providerserver.Serve(ctx, factory, providerserver.ServeOpts{Address: Address, Debug: debug})
	return errors.Join(err, closeAll())
}

// orphaned waits until the process that started this one has ended, and looks for that at this pace. It returns false
// when ctx ends first.
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
