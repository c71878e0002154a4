package client

import (
	"context"
	"io"
	"net/http"
	"net/url"

	"github.com/sandbox-lease/terraform-provider-sandbox/reconciler/internal/wire"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// StartExec implements service.Execs. With an ID, it retries after a lost response.
func (c *Client) StartExec(ctx context.Context, r sandbox.LeaseRef,
	req sandbox.ExecRequest) (x sandbox.Exec, err error) {
	path, err := runPath(r, req.Session)
	if err != nil {
		return x, err
	}
	req.Detach = true
	if _, err = req.Normalize(); err != nil { // the service fills in the defaults
		return x, err
	}
	body := wire.ExecRequest{
		ID:      req.ID,
		Detach:  true,
		Command: req.Command,
		Shell:   req.Shell,
		Source:  req.Source,
		Env:     req.Env,
		Cwd:     req.Cwd,
		User:    req.User,
		As:      req.As,
		Timeout: req.Timeout,
	}
	return x, c.call(ctx, request{method: http.MethodPost, path: path, body: body, slow: true, once: req.ID == ""}, &x)
}

// GetExec implements service.Execs.
func (c *Client) GetExec(ctx context.Context, r sandbox.ExecRef) (x sandbox.Exec, err error) {
	path, err := execPath(r)
	if err != nil {
		return x, err
	}
	return x, c.call(ctx, request{method: http.MethodGet, path: path}, &x)
}

// ListExecs implements service.Execs.
func (c *Client) ListExecs(ctx context.Context, f sandbox.ExecFilter) ([]sandbox.Exec, error) {
	path, err := leasePath(f.LeaseID)
	if err != nil {
		return nil, err
	}
	var page wire.ExecPage
	err = c.call(ctx, request{
		method: http.MethodGet,
		path:   path + "/execs" + query("state", string(f.State), "before", f.Before, "limit", number(f.Limit)),
	}, &page)
	return page.Execs, err
}

// CancelExec implements service.Execs.
func (c *Client) CancelExec(ctx context.Context, r sandbox.ExecRef) (x sandbox.Exec, err error) {
	path, err := execPath(r)
	if err != nil {
		return x, err
	}
	return x, c.call(ctx, request{method: http.MethodPost, path: path + "/cancel", slow: true}, &x)
}

// ReadExec implements service.Execs. After a lost connection, the reader continues from its offset.
func (c *Client) ReadExec(ctx context.Context, o sandbox.OutputRequest) (io.ReadCloser, error) {
	path, err := execPath(o.ExecRef)
	if err != nil {
		return nil, err
	}
	follow := ""
	if o.Follow {
		follow = "true"
	}
	resp, err := c.send(ctx, c.slow, http.MethodGet, path+"/"+url.PathEscape(string(o.Stream))+
		query("offset", number(o.Offset), "follow", follow), "", wire.OctetStream, nil)
	if err != nil {
		return nil, err
	}
	return resp.Body, nil
}

// execPath returns NotFound for ids that a path cannot hold. No command has such an id.
func execPath(r sandbox.ExecRef) (string, error) {
	path, err := leasePath(r.LeaseID)
	if err != nil {
		return "", err
	}
	if r.ID == "" || r.ID == "." || r.ID == ".." {
		return "", sandbox.Errorf(sandbox.NotFound, "lease %s has no command %q", r.LeaseID, r.ID).
			WithReason(sandbox.ReasonExecNotFound)
	}
	return path + "/execs/" + url.PathEscape(r.ID), nil
}
