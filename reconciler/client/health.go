package client

import (
	"context"
	"net/http"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/sandbox"
)

// LeaseUsage implements sandbox.Monitors.
func (c *Client) LeaseUsage(ctx context.Context, r sandbox.LeaseRef) (sandbox.LeaseUsage, error) {
	return monitor[sandbox.LeaseUsage](ctx, c, r, "/usage")
}

// LeaseHealth implements sandbox.Monitors.
func (c *Client) LeaseHealth(ctx context.Context, r sandbox.LeaseRef) (sandbox.LeaseHealth, error) {
	return monitor[sandbox.LeaseHealth](ctx, c, r, "/health")
}

func monitor[T any](ctx context.Context, c *Client, r sandbox.LeaseRef, what string) (answer T, err error) {
	path, err := leasePath(r.ID)
	if err != nil {
		return answer, err
	}
	err = c.call(ctx, request{method: http.MethodGet, path: path + what + fence(r), slow: true}, &answer)
	return answer, err
}
