package registry

import (
	"context"

	"github.com/google/go-containerregistry/pkg/name"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/dockerapi"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// hubAPI is what engines call Docker Hub when they pull from it.
const hubAPI = "registry-1.docker.io"

// ForPull returns what an engine needs to pull base images from a host, as it calls it. Errors: as EngineAuth.
func (c *Client) ForPull(ctx context.Context, host string) (dockerapi.AuthConfig, error) {
	if host == hubAPI {
		host = name.DefaultRegistry
	}
	of, err := name.NewRegistry(host)
	if err != nil {
		return dockerapi.AuthConfig{}, sandbox.Errorf(sandbox.Invalid, "%q is not the address of a registry", host)
	}
	return c.Auth(ctx, of)
}

// ForPulls returns what was given to the client, by registry, for an engine that does not ask.
func (c *Client) ForPulls(ctx context.Context) (map[string]dockerapi.AuthConfig, error) {
	all := make(map[string]dockerapi.AuthConfig, len(c.given))
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
