package wire

import "github.com/sandbox-lease/terraform-provider-sandbox/sandbox"

// TokenPage is a list of tokens.
type TokenPage struct {
	Tokens []sandbox.Token `json:"tokens" nullable:"false"`
}

// RotateToken is the body of a request for the next token of a name.
type RotateToken struct {
	Overlap sandbox.Duration `json:"overlap,omitzero" doc:"How long the tokens that the name has are still accepted. Default: not at all."`
	// Ceiling is that of the next token.
	Ceiling *sandbox.Ceiling `json:"ceiling,omitempty" doc:"The next token's ceiling. Default: that of the one before."`
}
