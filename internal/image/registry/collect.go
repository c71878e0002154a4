package registry

import (
	"context"
	"net/http"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/v1/remote/transport"

	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// Collect asks Cloudflare's registry to delete everything that no tag points to, as Cloudflare's own tools do
// after removing a tag. Other registries have no such call and answer NotFound or Forbidden. Errors: those,
// Invalid, Unauthenticated, Unavailable.
func (c *Client) Collect(ctx context.Context, host string) error {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	registry, err := name.NewRegistry(host)
	if err != nil {
		return sandbox.Errorf(sandbox.Invalid, "%q is not a registry address", host)
	}
	return coded(c.collect(ctx, registry), "collect garbage in %s", host)
}

func (c *Client) collect(ctx context.Context, registry name.Registry) error {
	rt, err := c.transport(registry.RegistryStr())
	if err != nil {
		return err
	}
	auth, err := c.Resolve(registry)
	if err != nil {
		return err
	}
	if rt, err = transport.NewWithContext(ctx, registry, auth, rt, nil); err != nil {
		return err
	}
	_, err = send(ctx, rt, http.MethodPut, registry.Scheme()+"://"+registry.RegistryStr()+"/v2/gc/layers", http.StatusOK,
		http.StatusAccepted, http.StatusNoContent)
	return err
}
