package client

import (
	"context"
	"io"
	"net/http"

	"github.com/sandbox-lease/terraform-provider-sandbox/reconciler/internal/wire"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// CollectWorkspace implements service.Workspaces. It streams until the reader is closed.
func (c *Client) CollectWorkspace(ctx context.Context, r sandbox.LeaseRef,
	form sandbox.WorkspaceForm) (io.ReadCloser, error) {
	if err := form.Validate(); err != nil {
		return nil, err
	}
	path, err := leasePath(r.ID)
	if err != nil {
		return nil, err
	}
	resp, err := c.send(ctx, c.slow, http.MethodGet, path+"/workspace/"+string(form)+fence(r), "", wire.OctetStream, nil)
	if err != nil {
		return nil, err
	}
	return resp.Body, nil
}

// PushWorkspace implements service.Workspaces.
func (c *Client) PushWorkspace(ctx context.Context, r sandbox.LeaseRef) (sandbox.WorkspacePushed, error) {
	path, err := leasePath(r.ID)
	if err != nil {
		return sandbox.WorkspacePushed{}, err
	}
	var pushed sandbox.WorkspacePushed
	err = c.call(ctx, request{method: http.MethodPost, path: path + "/workspace/push" + fence(r), slow: true}, &pushed)
	return pushed, err
}
