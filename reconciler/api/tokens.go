package api

import (
	"context"
	"net/http"

	"github.com/danielgtaylor/huma/v2"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/service"
	"github.com/sandbox-lease/terraform-provider-sandbox/reconciler/internal/wire"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// registerTokens adds how an administrator manages tokens of the ledger.
func (s *server) registerTokens(d *document) {
	if s.access == nil {
		return
	}
	tags := []string{"access"}
	add(d, huma.Operation{OperationID: "list-tokens", Method: http.MethodGet, Path: "/v1/tokens", Tags: tags,
		Summary: "List the tokens of the ledger, those that have ended too"}, administer(s, listTokens))
	add(d, huma.Operation{OperationID: "create-token", Method: http.MethodPost, Path: "/v1/tokens", Tags: tags, DefaultStatus: http.StatusCreated,
		Summary: "Make a token, whose text is told this once"}, administer(s, createToken))
	add(d, huma.Operation{OperationID: "rotate-token", Method: http.MethodPost, Path: "/v1/tokens/{token}/rotate", Tags: tags, DefaultStatus: http.StatusCreated,
		Summary: "Make the next token of a name; those that it has are accepted for some time yet"}, administer(s, rotateToken))
	add(d, huma.Operation{OperationID: "revoke-token", Method: http.MethodDelete, Path: "/v1/tokens/{token}", Tags: tags, DefaultStatus: http.StatusOK,
		Summary: "End the tokens of a name, or the one with an id"}, administer(s, revokeToken))
}

// administer makes a handler for administrators of everything: a caller that could make tokens for some
// environments only could make one for all.
func administer[I, O any](s *server, handler func(context.Context, service.Tokens, *I) (*O, error)) func(context.Context, service.Service, *I) (*O, error) {
	return func(ctx context.Context, service service.Service, in *I) (*O, error) {
		if limited, ok := service.(scoped); ok {
			if err := limited.everything("managing tokens"); err != nil {
				return nil, err
			}
		}
		return handler(ctx, s.access, in)
	}
}

func listTokens(ctx context.Context, tokens service.Tokens, _ *empty) (*reply[wire.TokenPage], error) {
	all, err := tokens.ListTokens(ctx)
	return replyWith(wire.TokenPage{Tokens: notNil(all)}, err)
}

func createToken(ctx context.Context, tokens service.Tokens, in *struct{ Body sandbox.CreateToken }) (*reply[sandbox.CreatedToken], error) {
	return replyWith(tokens.CreateToken(ctx, in.Body))
}

func rotateToken(ctx context.Context, tokens service.Tokens, in *struct {
	Token string `path:"token" doc:"The tokens' name."`
	Body  wire.RotateToken
}) (*reply[sandbox.CreatedToken], error) {
	return replyWith(tokens.RotateToken(ctx, sandbox.RotateToken{Name: in.Token, Overlap: in.Body.Overlap, Ceiling: in.Body.Ceiling}))
}

func revokeToken(ctx context.Context, tokens service.Tokens, in *struct {
	Token string `path:"token" doc:"A name, or the id of one token."`
}) (*reply[wire.TokenPage], error) {
	revoked, err := tokens.RevokeToken(ctx, in.Token)
	return replyWith(wire.TokenPage{Tokens: notNil(revoked)}, err)
}
