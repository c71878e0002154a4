package client

import (
	"context"
	"net/http"

	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// Sweep implements service.Maintenance.
func (c *Client) Sweep(ctx context.Context, r sandbox.SweepRequest) (report sandbox.SweepReport, err error) {
	return report, c.call(ctx, request{method: http.MethodPost, path: "/v1/sweep", body: r, slow: true}, &report)
}

// Audit implements service.Maintenance.
func (c *Client) Audit(ctx context.Context, r sandbox.AuditRequest) (report sandbox.AuditReport, err error) {
	return report, c.call(ctx, request{method: http.MethodPost, path: "/v1/audit", body: r, slow: true}, &report)
}

// Adopt implements service.Maintenance.
func (c *Client) Adopt(ctx context.Context, r sandbox.AdoptRequest) (report sandbox.AdoptReport, err error) {
	return report, c.call(ctx, request{method: http.MethodPost, path: "/v1/adopt", body: r, slow: true}, &report)
}
