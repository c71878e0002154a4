package registry

import (
	"context"

	"github.com/google/go-containerregistry/pkg/name"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/dockerapi"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// hubAPI is the name that engines use for Docker Hub in pulls.
const hubAPI = "registry-1.docker.io"

// ForPull returns the credentials for an engine to pull base images from a host. Errors: as EngineAuth.
func (c *Client) ForPull(ctx context.Context, host string) (dockerapi.AuthConfig, error) {
	if host == hubAPI {
		host = name.DefaultRegistry
	}
	of, err := name.NewRegistry(host)
	if err != nil {
		return dockerapi.AuthConfig{}, sandbox.Errorf(sandbox.Invalid, "%q is not a registry address", host)
	}
	return c.Auth(ctx, of)
}

// ForPulls returns the client's credentials by registry, for an engine that cannot request them one by one.
func (c *Client) ForPulls(ctx context.Context) (map[string]dockerapi.AuthConfig, error) {
	all := make(map[string]dockerapi.AuthConfig, len(c.given))
	for host := range c.given {
		auth, err := c.ForPull(ctx, host)
		if err != nil {
			return nil, err
		}
		if host == name.DefaultRegistry {
			host = "https://index.docker.io/v1/" // Docker Hub's name in Docker's configuration
		}
		all[host] = auth
	}
	return all, nil
}
