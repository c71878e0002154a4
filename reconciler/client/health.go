package client

import (
	"context"
	"net/http"

	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// LeaseUsage implements service.Health.
func (c *Client) LeaseUsage(ctx context.Context, r sandbox.LeaseRef) (sandbox.LeaseUsage, error) {
	return monitor[sandbox.LeaseUsage](ctx, c, r, "/usage")
}

// LeaseUsageHistory implements service.Health.
func (c *Client) LeaseUsageHistory(ctx context.Context,
	q sandbox.UsageHistoryQuery) (sandbox.LeaseUsageHistory, error) {
	return monitor[sandbox.LeaseUsageHistory](ctx, c, q.LeaseRef, "/usage/history",
		"from", moment(q.From), "to", moment(q.To))
}

// LeaseHealth implements service.Health.
func (c *Client) LeaseHealth(ctx context.Context, r sandbox.LeaseRef) (sandbox.LeaseHealth, error) {
	return monitor[sandbox.LeaseHealth](ctx, c, r, "/health")
}

func monitor[T any](ctx context.Context, c *Client, r sandbox.LeaseRef, what string,
	query ...string) (answer T, err error) {
	path, err := leasePath(r.ID)
	if err != nil {
		return answer, err
	}
	err = c.call(ctx, request{method: http.MethodGet, path: path + what + fence(r, query...), slow: true}, &answer)
	return answer, err
}
