package sandbox

import (
	"fmt"
	"path"
	"regexp"
	"slices"
	"strings"
	"time"
)

// Scope is what a token allows its holder.
type Scope string

// The scopes, of which a token has one or more.
const (
	// ScopeRead reads what the ledger knows: environments, leases, events, costs, drift, recordings. It
	// wakes no sandbox.
	ScopeRead Scope = "read"
	// ScopeLease acquires, uses and ends leases. It holds ScopeRead.
	ScopeLease Scope = "lease"
	// ScopeConditions sends conditions, and nothing else: it is a game server's.
	ScopeConditions Scope = "conditions"
	// ScopeAdmin holds every other one, and makes, changes and removes environments; without a limit to
	// environments also tokens, webhook secrets, states and what the backends have.
	ScopeAdmin Scope = "admin"
)

// Scopes are all scopes.
func Scopes() []Scope { return []Scope{ScopeRead, ScopeLease, ScopeConditions, ScopeAdmin} }

// Holds reports whether a token with the scope may do what needs another scope.
func (s Scope) Holds(needed Scope) bool {
	return s == needed || s == ScopeAdmin || s == ScopeLease && needed == ScopeRead
}

// Token describes a bearer token without its text, which is not kept.
type Token struct {
	// ID names this one; tokens that follow each other by rotation have one name.
	ID string `json:"id"`
	// Name is who has the token. What its holder makes belongs to the name, and events tell it.
	Name   string  `json:"name"`
	Scopes []Scope `json:"scopes" nullable:"false"`
	// Environments are patterns, as path.Match has them, of the environments that it may touch. None means
	// all of them, and what belongs to no environment.
	Environments []string `json:"environments,omitempty"`
	// Ceiling bounds what a token with Environments may ask for.
	Ceiling   Ceiling   `json:"ceiling,omitzero"`
	CreatedAt time.Time `json:"created_at"`
	CreatedBy string    `json:"created_by,omitempty"`
	ExpiresAt time.Time `json:"expires_at,omitzero"` // zero: never
	// LastUsedAt is known to the minute.
	LastUsedAt time.Time `json:"last_used_at,omitzero"`
	RevokedAt  time.Time `json:"revoked_at,omitzero"`
	RevokedBy  string    `json:"revoked_by,omitempty"`
}

// Live reports whether the token is accepted at a moment.
func (t Token) Live(now time.Time) bool {
	return t.RevokedAt.IsZero() && (t.ExpiresAt.IsZero() || now.Before(t.ExpiresAt))
}

// CreateToken asks for a token.
type CreateToken struct {
	Name         string   `json:"name" doc:"Who will have it: 1 to 63 letters, digits, '.', '_' and '-'."`
	Scopes       []Scope  `json:"scopes" nullable:"false" doc:"read, lease, conditions, admin. lease holds read, admin holds all."`
	Environments []string `json:"environments,omitempty" doc:"Patterns such as catan-* of the environments that it may touch. Default: all, and what belongs to none."`
	Ceiling      Ceiling  `json:"ceiling,omitzero" doc:"What a token with environments may ask for beyond what is safe without a decision."`
	// ExpiresAt is when it stops being accepted; zero means never.
	ExpiresAt time.Time `json:"expires_at,omitzero" doc:"When it stops being accepted. Default: never."`
}

// TokenIDPrefix begins every token's id, and no token's name.
const TokenIDPrefix = "tok_" // #nosec G101 -- not a credential

// IsTokenName reports whether a token may have the name.
func IsTokenName(name string) bool {
	return tokenName.MatchString(name) && !strings.HasPrefix(name, TokenIDPrefix)
}

// IsEnvironmentPattern reports whether a text is a pattern of environment ids, such as catan-*.
func IsEnvironmentPattern(pattern string) bool {
	_, err := path.Match(pattern, "")
	return err == nil && pattern != ""
}

var tokenName = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]{0,62}$`)

// Validate checks what can be wrong without the ledger. Errors: Invalid.
func (c CreateToken) Validate(now time.Time) error {
	var fields []Field
	wrong := func(name, format string, args ...any) {
		fields = append(fields, Field{Name: name, Problem: fmt.Sprintf(format, args...)})
	}
	if !IsTokenName(c.Name) {
		wrong("name", "must be 1 to 63 letters, digits, '.', '_' and '-', and not begin with %s", TokenIDPrefix)
	}
	if len(c.Scopes) == 0 {
		wrong("scopes", "must name one at least of %v", Scopes())
	}
	for _, s := range c.Scopes {
		if !slices.Contains(Scopes(), s) {
			wrong("scopes", "%q is none of %v", s, Scopes())
		}
	}
	for _, pattern := range c.Environments {
		if !IsEnvironmentPattern(pattern) {
			wrong("environments", "%q is not a pattern of environment ids such as catan-*", pattern)
		}
	}
	fields = append(fields, ceilingFields(c.Ceiling, c.Environments)...)
	if !c.ExpiresAt.IsZero() && !c.ExpiresAt.After(now) {
		wrong("expires_at", "must lie in the future")
	}
	return InvalidFields("token", fields)
}

// Unlimited reports whether patterns of environments limit nothing: there are none, or one matches every id.
func Unlimited(patterns []string) bool { return len(patterns) == 0 || slices.Contains(patterns, "*") }

// ceilingFields returns what is wrong with the ceiling of a token for environments.
func ceilingFields(c Ceiling, environments []string) []Field {
	if !c.IsZero() && Unlimited(environments) {
		return []Field{{"ceiling", "needs a token that is limited to environments: any other may ask for everything"}}
	}
	return c.fields()
}

// CheckCeiling refuses a ceiling that a token for environments cannot have. Errors: Invalid.
func CheckCeiling(c Ceiling, environments []string) error {
	return InvalidFields("token", ceilingFields(c, environments))
}

// RotateToken asks for a token that follows another under its name, with its scopes and environments.
type RotateToken struct {
	Name string
	// Ceiling is that of the next token; nil means that of the one before.
	Ceiling *Ceiling
	// Overlap is how long the tokens that the name has are still accepted; zero ends them at once.
	Overlap Duration
}

// CreatedToken is a new token. Its text is told this once.
type CreatedToken struct {
	Token
	Text Secret `json:"token"`
}

// TokenChange is what an event tells of a token.
type TokenChange struct {
	ID           string    `json:"id"`
	Name         string    `json:"name"`
	Scopes       []Scope   `json:"scopes"`
	Environments []string  `json:"environments,omitempty"`
	Ceiling      Ceiling   `json:"ceiling,omitzero"`
	ExpiresAt    time.Time `json:"expires_at,omitzero"`
}
