package client

import (
	"context"
	"net/http"
	"net/url"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/service"
	"github.com/sandbox-lease/terraform-provider-sandbox/reconciler/internal/wire"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

var _ service.Tokens = (*Client)(nil)

// CreateToken implements service.Tokens.
func (c *Client) CreateToken(ctx context.Context, t sandbox.CreateToken) (made sandbox.CreatedToken, err error) {
	return made, c.call(ctx, request{method: http.MethodPost, path: "/v1/tokens", body: t, once: true}, &made)
}

// RotateToken implements service.Tokens.
func (c *Client) RotateToken(ctx context.Context, r sandbox.RotateToken) (made sandbox.CreatedToken, err error) {
	path, err := tokenPath(r.Name)
	if err != nil {
		return made, err
	}
	return made, c.call(ctx, request{
		method: http.MethodPost,
		path:   path + "/rotate",
		body:   wire.RotateToken{Overlap: r.Overlap, Ceiling: r.Ceiling},
		once:   true,
	}, &made)
}

// ListTokens implements service.Tokens.
func (c *Client) ListTokens(ctx context.Context) ([]sandbox.Token, error) {
	var page wire.TokenPage
	err := c.call(ctx, request{method: http.MethodGet, path: "/v1/tokens"}, &page)
	return page.Tokens, err
}

// RevokeToken implements service.Tokens.
func (c *Client) RevokeToken(ctx context.Context, nameOrID string) ([]sandbox.Token, error) {
	path, err := tokenPath(nameOrID)
	if err != nil {
		return nil, err
	}
	var page wire.TokenPage
	err = c.call(ctx, request{method: http.MethodDelete, path: path}, &page)
	return page.Tokens, err
}

// tokenPath returns NotFound for names that a path cannot hold. No token has such a name.
func tokenPath(nameOrID string) (string, error) {
	if nameOrID == "" || nameOrID == "." || nameOrID == ".." {
		return "", sandbox.Errorf(sandbox.NotFound, "no token has the name or id %q", nameOrID)
	}
	return "/v1/tokens/" + url.PathEscape(nameOrID), nil
}
