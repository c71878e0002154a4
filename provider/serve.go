package provider

import (
	"context"
	"errors"
	"os"
	"sync"

	"github.com/hashicorp/terraform-plugin-framework/provider"
	"github.com/hashicorp/terraform-plugin-framework/providerserver"
)

// Serve answers Terraform until it ends the plugin, then closes what was opened meanwhile. With
// debug it prints how to attach Terraform to this process instead.
func Serve(ctx context.Context, version string, debug bool) error {
	if !debug {
		if err := quiet(os.Environ(), os.Setenv); err != nil {
			return err
		}
	}
	var (
		mu   sync.Mutex
		made []*Provider
	)
	factory := func() provider.Provider {
		p := &Provider{version: version, getenv: os.Getenv}
		mu.Lock()
		defer mu.Unlock()
		made = append(made, p)
		return p
	}
	err := providerserver.Serve(ctx, factory, providerserver.ServeOpts{Address: Address, Debug: debug})
	mu.Lock()
	defer mu.Unlock()
	errs := []error{err}
	for _, p := range made {
		errs = append(errs, p.Close())
	}
	return errors.Join(errs...)
}
