package service

import (
	"context"

	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// Tokens manages bearer tokens.
type Tokens interface {
	// CreateToken creates a token. Errors: Invalid; Conflict if a live token has the name.
	CreateToken(ctx context.Context, c sandbox.CreateToken) (sandbox.CreatedToken, error)
	// RotateToken creates the next token of a name, with the same lifetime as the previous one. Errors:
	// Invalid; NotFound if no live token has the name.
	RotateToken(ctx context.Context, r sandbox.RotateToken) (sandbox.CreatedToken, error)
	// ListTokens returns the ledger's tokens, sorted by name and newest first within a name, including ended
	// ones.
	ListTokens(ctx context.Context) ([]sandbox.Token, error)
	// RevokeToken ends and returns all live tokens of a name, or the one with an id. Already ended is
	// success. Errors: NotFound if there never was one.
	RevokeToken(ctx context.Context, nameOrID string) ([]sandbox.Token, error)
}
