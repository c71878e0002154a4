package routes

import (
	"context"
	"net/http"

	"github.com/danielgtaylor/huma/v2"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/service"
	"github.com/sandbox-lease/terraform-provider-sandbox/reconciler/api/document"
	"github.com/sandbox-lease/terraform-provider-sandbox/reconciler/api/rights"
	"github.com/sandbox-lease/terraform-provider-sandbox/reconciler/internal/wire"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// registerTokens adds the operations that manage the tokens of the ledger.
func (s *Routes) registerTokens(d *document.Document) {
	if s.Tokens == nil {
		return
	}
	tags := []string{"access"}
	document.Add(d, sandbox.ScopeAdmin, huma.Operation{OperationID: "list-tokens", Method: http.MethodGet,
		Path: "/v1/tokens", Tags: tags,
		Summary: "List the tokens of the ledger, including expired and revoked ones"}, administer(s, listTokens))
	document.Add(d, sandbox.ScopeAdmin, huma.Operation{OperationID: "create-token", Method: http.MethodPost,
		Path: "/v1/tokens", Tags: tags, DefaultStatus: http.StatusCreated,
		Summary: "Create a token and return its text, this one time"}, administer(s, createToken))
	document.Add(d, sandbox.ScopeAdmin, huma.Operation{OperationID: "rotate-token", Method: http.MethodPost,
		Path: "/v1/tokens/{token}/rotate", Tags: tags, DefaultStatus: http.StatusCreated,
		Summary: "Create the next token of a name; the previous ones stay valid for the overlap"},
		administer(s, rotateToken))
	document.Add(d, sandbox.ScopeAdmin, huma.Operation{OperationID: "revoke-token", Method: http.MethodDelete,
		Path: "/v1/tokens/{token}", Tags: tags, DefaultStatus: http.StatusOK,
		Summary: "Revoke the tokens of a name, or the token with an id"}, administer(s, revokeToken))
}

// Administration is the target of operations on tokens: everything. A caller limited to some environments could
// otherwise create a token for all of them. Exported for huma, see EnvironmentPath.
type Administration struct{}

// Touches returns the target of the request.
func (Administration) Touches() rights.Target { return rights.Everything("managing tokens") }

// administer returns a handler for an operation of the token registry.
func administer[I, O any](s *Routes,
	handler func(context.Context, service.Tokens, *I) (*O, error)) func(context.Context, service.Service, *I) (*O, error) {
	return func(ctx context.Context, _ service.Service, in *I) (*O, error) {
		return handler(ctx, s.Tokens, in)
	}
}

func listTokens(ctx context.Context, tokens service.Tokens, _ *Administration) (*reply[wire.TokenPage], error) {
	all, err := tokens.ListTokens(ctx)
	return replyWith(wire.TokenPage{Tokens: notNil(all)}, err)
}

func createToken(ctx context.Context, tokens service.Tokens, in *struct {
	Administration
	Body sandbox.CreateToken
}) (*reply[sandbox.CreatedToken], error) {
	return replyWith(tokens.CreateToken(ctx, in.Body))
}

func rotateToken(ctx context.Context, tokens service.Tokens, in *struct {
	Administration
	Token string `path:"token" doc:"The name of the tokens."`
	Body  wire.RotateToken
}) (*reply[sandbox.CreatedToken], error) {
	return replyWith(tokens.RotateToken(ctx,
		sandbox.RotateToken{Name: in.Token, Overlap: in.Body.Overlap, Ceiling: in.Body.Ceiling}))
}

func revokeToken(ctx context.Context, tokens service.Tokens, in *struct {
	Administration
	Token string `path:"token" doc:"A name, or the id of one token."`
}) (*reply[wire.TokenPage], error) {
	revoked, err := tokens.RevokeToken(ctx, in.Token)
	return replyWith(wire.TokenPage{Tokens: notNil(revoked)}, err)
}
