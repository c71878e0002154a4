package client

import (
	"context"
	"net/http"
	"net/url"

	"github.com/sandbox-lease/terraform-provider-sandbox/reconciler/internal/wire"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// ListSnapshots implements service.Snapshots.
func (c *Client) ListSnapshots(ctx context.Context, f sandbox.SnapshotFilter) ([]sandbox.Snapshot, error) {
	var page wire.StatePage
	err := c.call(ctx, request{method: http.MethodGet, path: "/v1/states" + query(
		"environment_id", f.EnvironmentID, "agent_did", f.AgentDID, "after", f.After, "limit", number(f.Limit),
	)}, &page)
	return page.States, err
}

// DeleteSnapshot implements service.Snapshots.
func (c *Client) DeleteSnapshot(ctx context.Context, key string) error {
	if key == "" || key == "." || key == ".." { // a path cannot hold it, and no snapshot has such a key
		return sandbox.Errorf(sandbox.NotFound, "no snapshot has the key %q", key)
	}
	return c.call(ctx, request{method: http.MethodDelete, path: "/v1/states/" + url.PathEscape(key)}, nil)
}
