package wire

import "github.com/sandbox-lease/terraform-provider-sandbox/sandbox"

// TokenPage is a list of tokens.
type TokenPage struct {
	Tokens []sandbox.Token `json:"tokens" nullable:"false"`
}

// RotateToken is the body of a request for the next token of a name.
type RotateToken struct {
	Overlap sandbox.Duration `json:"overlap,omitzero" doc:"How long the previous tokens stay valid. Default: 0."`
	// Ceiling is the ceiling of the next token.
	Ceiling *sandbox.Ceiling `json:"ceiling,omitempty" doc:"The ceiling of the next token. Default: the previous one."`
}
