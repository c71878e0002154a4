package client

import (
	"context"
	"net/http"
	"net/url"
	"strconv"

	"github.com/sandbox-lease/terraform-provider-sandbox/reconciler/internal/wire"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// StartProcess implements service.Processes. It does not retry: the process may exit before a retry, which would start
// it again.
func (c *Client) StartProcess(ctx context.Context, r sandbox.LeaseRef,
	p sandbox.ProcessSpec) (x sandbox.Process, err error) {
	path, err := leasePath(r.ID)
	if err != nil {
		return x, err
	}
	if p, err = p.Normalize(sandbox.AnyRules()); err != nil {
		return x, err
	}
	return x, c.call(ctx,
		request{method: http.MethodPost, path: path + "/processes" + fence(r), body: p, slow: true, once: true}, &x)
}

// GetProcess implements service.Processes.
func (c *Client) GetProcess(ctx context.Context, r sandbox.ProcessRef) (x sandbox.Process, err error) {
	path, err := processPath(r)
	if err != nil {
		return x, err
	}
	return x, c.call(ctx, request{method: http.MethodGet, path: path + fence(r.LeaseRef)}, &x)
}

// ListProcesses implements service.Processes.
func (c *Client) ListProcesses(ctx context.Context, leaseID string) ([]sandbox.Process, error) {
	path, err := leasePath(leaseID)
	if err != nil {
		return nil, err
	}
	var page wire.ProcessPage
	err = c.call(ctx, request{method: http.MethodGet, path: path + "/processes"}, &page)
	return page.Processes, err
}

// WaitProcess implements service.Processes.
func (c *Client) WaitProcess(ctx context.Context, w sandbox.ProcessWait) (got sandbox.ProcessWaited, err error) {
	path, err := processPath(w.ProcessRef)
	if err != nil {
		return got, err
	}
	if w, _, err = w.Normalize(); err != nil {
		return got, err
	}
	body := wire.ProcessWait{Log: w.Log, Port: w.Port, Exit: w.Exit, Timeout: w.Timeout}
	return got, c.call(ctx, request{
		method:   http.MethodPost,
		path:     path + "/wait" + fence(w.LeaseRef),
		body:     body,
		slow:     true,
		longer:   w.Timeout.D(),
		harmless: true,
		once:     true, // a wait that has run out would begin again
	}, &got)
}

// KillProcess implements service.Processes.
func (c *Client) KillProcess(ctx context.Context, r sandbox.ProcessRef) (x sandbox.Process, err error) {
	path, err := processPath(r)
	if err != nil {
		return x, err
	}
	return x, c.call(ctx, request{method: http.MethodDelete, path: path + fence(r.LeaseRef), slow: true}, &x)
}

// ReadProcess implements service.Processes. After a lost connection, the reader continues from its offset.
func (c *Client) ReadProcess(ctx context.Context, l sandbox.LogRequest) (sandbox.ProcessLog, error) {
	path, err := processPath(l.ProcessRef)
	if err != nil {
		return sandbox.ProcessLog{}, err
	}
	return c.readLog(ctx, path+"/logs", l.LeaseRef, l.Offset, l.Follow)
}

// ReadCompanion implements service.Companions.
func (c *Client) ReadCompanion(ctx context.Context, l sandbox.CompanionLogRequest) (sandbox.ProcessLog, error) {
	path, err := leasePath(l.ID)
	if err != nil {
		return sandbox.ProcessLog{}, err
	}
	if !sandbox.IsCompanionName(l.Name) {
		return sandbox.ProcessLog{}, sandbox.Errorf(sandbox.NotFound, "lease %s has no companion %q", l.ID, l.Name).
			WithReason(sandbox.ReasonCompanionNotFound)
	}
	return c.readLog(ctx, path+"/companions/"+l.Name+"/logs", l.LeaseRef, l.Offset, l.Follow)
}

// readLog reads the log at a path.
func (c *Client) readLog(ctx context.Context, path string, r sandbox.LeaseRef, offset int64,
	follow bool) (sandbox.ProcessLog, error) {
	follows := ""
	if follow {
		follows = "true"
	}
	path += fence(r, "offset", number(offset), "follow", follows)
	resp, err := c.send(ctx, c.slow, http.MethodGet, path, "", wire.OctetStream, nil)
	if err != nil {
		return sandbox.ProcessLog{}, err
	}
	begins, err := strconv.ParseInt(resp.Header.Get(wire.HeaderLogOffset), 10, 64)
	if err != nil {
		_ = resp.Body.Close() // not needed
		return sandbox.ProcessLog{}, c.lost(http.MethodGet, path, true, err)
	}
	return sandbox.ProcessLog{ReadCloser: resp.Body, Offset: begins}, nil
}

// processPath returns NotFound for names that a path cannot hold. No process has such a name.
func processPath(r sandbox.ProcessRef) (string, error) {
	path, err := leasePath(r.LeaseRef.ID)
	if err != nil {
		return "", err
	}
	if r.Name == "" || r.Name == "." || r.Name == ".." {
		return "", sandbox.Errorf(sandbox.NotFound, "lease %s has no process %q", r.LeaseRef.ID, r.Name).
			WithReason(sandbox.ReasonProcessNotFound)
	}
	return path + "/processes/" + url.PathEscape(r.Name), nil
}
