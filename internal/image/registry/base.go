package registry

import (
	"context"

	dockerregistry "github.com/docker/docker/api/types/registry"
	"github.com/google/go-containerregistry/pkg/name"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/sandbox"
)

// hubAPI is what engines call Docker Hub when they pull from it.
const hubAPI = "registry-1.docker.io"

// ForPull returns what an engine needs to pull base images from a host, as it calls it. Errors: as EngineAuth.
func (c *Client) ForPull(ctx context.Context, host string) (dockerregistry.AuthConfig, error) {
	if host == hubAPI {
		host = name.DefaultRegistry
	}
	of, err := name.NewRegistry(host)
	if err != nil {
		return dockerregistry.AuthConfig{}, sandbox.Errorf(sandbox.Invalid, "%q is not the address of a registry", host)
	}
	return c.Auth(ctx, of)
}

// ForPulls returns what was given to the client, by registry, for an engine that does not ask.
func (c *Client) ForPulls(ctx context.Context) (map[string]dockerregistry.AuthConfig, error) {
	all := make(map[string]dockerregistry.AuthConfig, len(c.given))
	for host := range c.given {
		auth, err := c.ForPull(ctx, host)
		if err != nil {
			return nil, err
		}
		if host == name.DefaultRegistry {
			host = "https://index.docker.io/v1/" // the name of it in Docker's configuration
		}
		all[host] = auth
	}
	return all, nil
}
