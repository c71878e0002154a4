package client

import (
	"context"
	"encoding/json"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/driver"
	"github.com/sandbox-lease/terraform-provider-sandbox/reconciler/internal/wire"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// PutEnvironment implements service.Environments.
func (c *Client) PutEnvironment(ctx context.Context, p sandbox.PutEnvironment) (e sandbox.Environment, err error) {
	path, err := environmentPath(p.ID)
	if err != nil {
		return e, err
	}
	r := request{method: http.MethodPut, path: path, body: p, slow: true, once: p.CreateOnly}
	if p.Backend == sandbox.Cloudflare { // the client pushes the image
		r.longer = driver.ImageLimit
	}
	return e, c.call(ctx, r, &e)
}

// CheckEnvironment implements service.Environments.
func (c *Client) CheckEnvironment(ctx context.Context, p sandbox.PutEnvironment) error {
	path, err := environmentPath(p.ID)
	if err != nil {
		return err
	}
	r := request{method: http.MethodPost, path: path + "/check", body: p, slow: true, harmless: true}
	return c.call(ctx, r, nil)
}

// GetEnvironment implements service.Environments.
func (c *Client) GetEnvironment(ctx context.Context, id string) (e sandbox.Environment, err error) {
	path, err := environmentPath(id)
	if err != nil {
		return e, err
	}
	return e, c.call(ctx, request{method: http.MethodGet, path: path}, &e)
}

// ListEnvironments implements service.Environments.
func (c *Client) ListEnvironments(ctx context.Context) ([]sandbox.Environment, error) {
	var page wire.EnvironmentPage
	err := c.call(ctx, request{method: http.MethodGet, path: "/v1/environments"}, &page)
	return page.Environments, err
}

// ReopenEnvironment implements service.Environments.
func (c *Client) ReopenEnvironment(ctx context.Context, id string) (e sandbox.Environment, err error) {
	path, err := environmentPath(id)
	if err != nil {
		return e, err
	}
	return e, c.call(ctx, request{method: http.MethodPost, path: path + "/reopen"}, &e)
}

// DeleteEnvironment implements service.Environments.
func (c *Client) DeleteEnvironment(ctx context.Context, d sandbox.DeleteEnvironment) error {
	path, err := environmentPath(d.ID)
	if err != nil {
		return err
	}
	force := ""
	if d.Force {
		force = "true"
	}
	path += query("force", force, "owner", d.Owner)
	return c.call(ctx, request{method: http.MethodDelete, path: path, slow: true}, nil)
}

// Acquire implements service.Leases.
func (c *Client) Acquire(ctx context.Context, a sandbox.Acquire) (got sandbox.Acquired, err error) {
	r := request{method: http.MethodPost, path: "/v1/leases", body: a, slow: !a.NoWait}
	if a.NoWait {
		r.header = http.Header{"Prefer": {wire.RespondAsync}}
	}
	return got, c.call(ctx, r, &got)
}

// AcquireBatch implements service.Leases.
func (c *Client) AcquireBatch(ctx context.Context, b sandbox.AcquireBatch) ([]sandbox.AcquireResult, error) {
	r := request{method: http.MethodPost, path: "/v1/leases/batch", body: b, slow: !b.NoWait}
	if b.NoWait {
		r.header = http.Header{"Prefer": {wire.RespondAsync}}
	}
	var got wire.AcquiredBatch
	if err := c.call(ctx, r, &got); err != nil {
		return nil, err
	}
	results := make([]sandbox.AcquireResult, len(got.Results))
	for i, item := range got.Results {
		switch {
		case item.Error != nil:
			results[i].Err = item.Error.Err()
		case item.Lease != nil:
			results[i].Acquired = sandbox.Acquired{Lease: *item.Lease, IsNew: item.IsNew}
		}
	}
	return results, nil
}

// GetLease implements service.Leases.
func (c *Client) GetLease(ctx context.Context, id string) (sandbox.Lease, error) {
	return c.lease(ctx, request{method: http.MethodGet}, sandbox.LeaseRef{ID: id}, "", query())
}

// ObserveLease implements service.Leases.
func (c *Client) ObserveLease(ctx context.Context, id string) (sandbox.Lease, error) {
	return c.lease(ctx, request{method: http.MethodGet, slow: true}, sandbox.LeaseRef{ID: id}, "",
		query("observe", "true"))
}

// ListLeases implements service.Leases.
func (c *Client) ListLeases(ctx context.Context, f sandbox.LeaseFilter) ([]sandbox.Lease, error) {
	var page wire.LeasePage
	observe := ""
	if f.Observe {
		observe = "true"
	}
	err := c.call(ctx, request{method: http.MethodGet, slow: f.Observe, path: "/v1/leases" + query(
		"environment_id", f.EnvironmentID, "agent_did", f.AgentDID, "status", string(f.Status),
		"labels", string(f.Labels), "search", f.Search, "sort", string(f.Sort),
		"after", f.After, "limit", number(f.Limit), "observe", observe,
	)}, &page)
	return page.Leases, err
}

// Renew implements service.Leases.
func (c *Client) Renew(ctx context.Context, r sandbox.Renew) (sandbox.Lease, error) {
	return c.lease(ctx, request{method: http.MethodPost, body: wire.RenewRequest{Settings: r.Settings}}, r.LeaseRef,
		"/renew", fence(r.LeaseRef))
}

// Release implements service.Leases.
func (c *Client) Release(ctx context.Context, r sandbox.LeaseRef) (sandbox.Lease, error) {
	return c.lease(ctx, request{method: http.MethodPost, slow: true}, r, "/release", fence(r))
}

// StartRelease implements service.Leases.
func (c *Client) StartRelease(ctx context.Context, r sandbox.LeaseRef) (sandbox.Lease, error) {
	q := request{method: http.MethodPost, header: http.Header{"Prefer": {wire.RespondAsync}}}
	return c.lease(ctx, q, r, "/release", fence(r))
}

// Sleep implements service.Leases.
func (c *Client) Sleep(ctx context.Context, r sandbox.LeaseRef) (sandbox.Lease, error) {
	return c.lease(ctx, request{method: http.MethodPost, slow: true}, r, "/sleep", fence(r))
}

// Wake implements service.Leases.
func (c *Client) Wake(ctx context.Context, r sandbox.LeaseRef) (sandbox.Lease, error) {
	return c.lease(ctx, request{method: http.MethodPost, slow: true}, r, "/wake", fence(r))
}

func (c *Client) lease(ctx context.Context, r request, ref sandbox.LeaseRef,
	verb, query string) (l sandbox.Lease, err error) {
	path, err := leasePath(ref.ID)
	if err != nil {
		return l, err
	}
	r.path = path + verb + query
	return l, c.call(ctx, r, &l)
}

// Deliver implements service.Conditions. It sends d.Body unchanged, or without one d.Condition.
func (c *Client) Deliver(ctx context.Context, d sandbox.Delivery) (receipt sandbox.Receipt, err error) {
	if len(d.Body) == 0 {
		if d.Body, err = json.Marshal(d.Condition); err != nil {
			return receipt, sandbox.Errorf(sandbox.Invalid, "condition %s: %w", d.ID, err)
		}
	}
	header := http.Header{"Webhook-Id": {d.ID}}
	if c.sign != nil {
		if err := c.sign(header, d.ID, d.Body); err != nil {
			return receipt, err
		}
	}
	return receipt, c.call(ctx, request{method: http.MethodPost, path: "/v1/conditions", body: d.Body, header: header,
		signed: c.sign != nil}, &receipt)
}

// Ledger implements service.Reports.
func (c *Client) Ledger(ctx context.Context) (l sandbox.LedgerInfo, err error) {
	return l, c.call(ctx, request{method: http.MethodGet, path: "/v1/ledger"}, &l)
}

// ListEvents implements service.Reports.
func (c *Client) ListEvents(ctx context.Context, f sandbox.EventFilter) ([]sandbox.Event, error) {
	var page wire.EventPage
	err := c.call(ctx, request{method: http.MethodGet, path: eventsPath(f)}, &page)
	return page.Events, err
}

// Costs implements service.Reports.
func (c *Client) Costs(ctx context.Context, q sandbox.CostQuery) (r sandbox.CostReport, err error) {
	return r, c.call(ctx, request{method: http.MethodGet, path: "/v1/costs" + query(
		"environment_id", q.EnvironmentID, "agent_did", q.AgentDID, "from", moment(q.From), "to", moment(q.To),
		"labels", string(q.Labels), "group_by", string(q.GroupBy),
	)}, &r)
}

// ListLLMCalls implements service.Reports.
func (c *Client) ListLLMCalls(ctx context.Context, q sandbox.LLMCallQuery) ([]sandbox.LLMCall, error) {
	var page wire.LLMCallPage
	err := c.call(ctx, request{method: http.MethodGet, path: "/v1/llm-calls" + query(
		"environment_id", q.EnvironmentID, "lease_id", q.LeaseID, "session", q.Session, "before", q.Before,
		"limit", number(q.Limit),
	)}, &page)
	return page.Calls, err
}

// Agents implements service.Processes.
func (c *Client) Agents(ctx context.Context, f sandbox.AgentFilter) ([]sandbox.Agent, error) {
	if err := f.Validate(); err != nil {
		return nil, err
	}
	var page wire.AgentPage
	err := c.call(ctx, request{method: http.MethodGet, path: "/v1/agents" + query(
		"environment_id", f.EnvironmentID, "lease_id", f.LeaseID, "state", string(f.State), "after", f.After,
		"limit", number(f.Limit),
	)}, &page)
	return page.Agents, err
}

// ListDrift implements service.Reports.
func (c *Client) ListDrift(ctx context.Context, f sandbox.DriftFilter) ([]sandbox.DriftFinding, error) {
	var page wire.DriftPage
	err := c.call(ctx, request{method: http.MethodGet, path: "/v1/drift" + query(
		"environment_id", f.EnvironmentID, "lease_id", f.LeaseID, "kind", string(f.Kind), "status", string(f.Status),
		"limit", number(f.Limit),
	)}, &page)
	return page.Findings, err
}

// ListDeliveries implements service.Reports.
func (c *Client) ListDeliveries(ctx context.Context, f sandbox.DeliveryFilter) ([]sandbox.StoredDelivery, error) {
	var page wire.DeliveryPage
	err := c.call(ctx, request{method: http.MethodGet, path: "/v1/deliveries" + query(
		"id", f.ID, "environment_id", f.EnvironmentID, "status", string(f.Status), "before", f.Before,
		"limit", number(f.Limit),
	)}, &page)
	return page.Deliveries, err
}

// environmentPath returns NotFound for ids that a path cannot hold. No environment has such an id.
func environmentPath(id string) (string, error) {
	if id == "" || id == "." || id == ".." {
		return "", sandbox.Errorf(sandbox.NotFound, "environment %q does not exist", id)
	}
	return "/v1/environments/" + url.PathEscape(id), nil
}

func leasePath(id string) (string, error) {
	if _, _, err := sandbox.ParseLeaseID(id); err != nil {
		return "", err
	}
	return "/v1/leases/" + url.PathEscape(id), nil
}

func eventsPath(f sandbox.EventFilter) string {
	return "/v1/events" + query("environment_id", f.EnvironmentID, "lease_id", f.LeaseID,
		"sandbox_id", f.SandboxID, "type", f.Type, "labels", string(f.Labels),
		"from_sequence", number(f.FromSequence), "after_id", number(f.AfterID),
		"latest", flag(f.Latest), "before_id", number(f.BeforeID), "limit", number(f.Limit))
}

// fence returns the query that fences a request by generation and owner.
func fence(r sandbox.LeaseRef, more ...string) string {
	return query(append(more, "generation", number(r.Generation), "owner", r.Owner)...)
}

func number[T int | int64](n T) string {
	if n == 0 {
		return ""
	}
	return strconv.FormatInt(int64(n), 10)
}

func flag(set bool) string {
	if !set {
		return ""
	}
	return "true"
}

func moment(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return t.UTC().Format(time.RFC3339Nano)
}
