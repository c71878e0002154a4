package service

import (
	"context"

	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// Tokens manages bearer tokens.
type Tokens interface {
	// CreateToken makes a token. Errors: Invalid; Conflict when a live one has the name.
	CreateToken(ctx context.Context, c sandbox.CreateToken) (sandbox.CreatedToken, error)
	// RotateToken makes the next token of a name, which expires as long after its making as the one before
	// it did. Errors: Invalid; NotFound when no live one has the name.
	RotateToken(ctx context.Context, r sandbox.RotateToken) (sandbox.CreatedToken, error)
	// ListTokens returns the tokens of the ledger by name, the latest of a name first, also those that have ended.
	ListTokens(ctx context.Context) ([]sandbox.Token, error)
	// RevokeToken ends all live tokens of a name, or the one with an id, and returns them; what has ended
	// before is success. Errors: NotFound when there never was any.
	RevokeToken(ctx context.Context, nameOrID string) ([]sandbox.Token, error)
}
