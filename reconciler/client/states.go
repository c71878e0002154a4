package client

import (
	"context"
	"net/http"
	"net/url"

	"github.com/sandbox-lease/terraform-provider-sandbox/reconciler/internal/wire"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// ListStates implements service.States.
func (c *Client) ListStates(ctx context.Context, f sandbox.StateFilter) ([]sandbox.SavedState, error) {
	var page wire.StatePage
	err := c.call(ctx, request{method: http.MethodGet, path: "/v1/states" + query(
		"environment_id", f.EnvironmentID, "agent_did", f.AgentDID, "after", f.After, "limit", number(f.Limit),
	)}, &page)
	return page.States, err
}

// DeleteState implements service.States.
func (c *Client) DeleteState(ctx context.Context, key string) error {
	if key == "" || key == "." || key == ".." { // a path cannot carry it, and no state has such a key
		return sandbox.Errorf(sandbox.NotFound, "no state is saved under %q", key)
	}
	return c.call(ctx, request{method: http.MethodDelete, path: "/v1/states/" + url.PathEscape(key)}, nil)
}
