package sandbox

import (
	"fmt"
	"path"
	"slices"
	"strings"
	"time"
)

// Scope is one right of a token.
type Scope string

// The scopes. A token has at least one.
const (
	// ScopeRead reads what the ledger holds: environments, leases, events, costs, drift, recordings. It wakes
	// no sandbox.
	ScopeRead Scope = "read"
	// ScopeLease acquires, uses and ends leases. It includes ScopeRead.
	ScopeLease Scope = "lease"
	// ScopeConditions sends conditions and nothing else. It is meant for game servers.
	ScopeConditions Scope = "conditions"
	// ScopeAdmin includes all other scopes and manages environments. If the token is not limited to
	// environments, it also manages tokens, webhook secrets, snapshots and what backends hold.
	ScopeAdmin Scope = "admin"
)

// Scopes returns all scopes.
func Scopes() []Scope { return []Scope{ScopeRead, ScopeLease, ScopeConditions, ScopeAdmin} }

// Holds reports whether a token with scope s may do what requires the scope needed.
func (s Scope) Holds(needed Scope) bool {
	return s == needed || s == ScopeAdmin || s == ScopeLease && needed == ScopeRead
}

// Token describes a bearer token. The token's text is not stored.
type Token struct {
	// ID identifies this token. Rotation keeps the name and issues a new ID.
	ID string `json:"id"`
	// Name identifies the token's holder. It owns what the token creates, and events record it.
	Name   string  `json:"name"`
	Scopes []Scope `json:"scopes" nullable:"false"`
	// Environments are path.Match patterns of the environments that the token may touch. Empty means all
	// environments, and also what belongs to no environment.
	Environments []string `json:"environments,omitempty"`
	// Ceiling bounds what a token with Environments may request.
	Ceiling   Ceiling   `json:"ceiling,omitzero"`
	CreatedAt time.Time `json:"created_at"`
	CreatedBy string    `json:"created_by,omitempty"`
	ExpiresAt time.Time `json:"expires_at,omitzero"` // zero: never
	// LastUsedAt is accurate to one minute.
	LastUsedAt time.Time `json:"last_used_at,omitzero"`
	RevokedAt  time.Time `json:"revoked_at,omitzero"`
	RevokedBy  string    `json:"revoked_by,omitempty"`
}

// Live reports whether the token is valid at now.
func (t Token) Live(now time.Time) bool {
	return t.RevokedAt.IsZero() && (t.ExpiresAt.IsZero() || now.Before(t.ExpiresAt))
}

// CreateToken asks for a new token.
type CreateToken struct {
	Name         string   `json:"name" doc:"Name of the token's holder: 1 to 63 letters, digits, '.', '_' and '-'."`
	Scopes       []Scope  `json:"scopes" nullable:"false" doc:"read, lease, conditions, admin. lease includes read; admin includes all."`
	Environments []string `json:"environments,omitzero" minItems:"1" doc:"Patterns, such as catan-*, of the environments that the token may touch. An empty list is an error. Default: all environments, and what belongs to none."`
	Ceiling      Ceiling  `json:"ceiling,omitzero" doc:"Raises the safe default limits of a token that is limited to environments."`
	// ExpiresAt is when the token expires; zero means never.
	ExpiresAt time.Time `json:"expires_at,omitzero" doc:"When the token expires. Default: never."`
}

// TokenIDPrefix starts the id of every token. No token name may start with it.
const TokenIDPrefix = "tok_" // #nosec G101 -- not a credential

// IsTokenName reports whether name is a valid token name.
func IsTokenName(name string) bool {
	return tokenName().MatchString(name) && !strings.HasPrefix(name, TokenIDPrefix)
}

// IsEnvironmentPattern reports whether pattern is a valid pattern of environment ids, such as catan-*.
func IsEnvironmentPattern(pattern string) bool {
	_, err := path.Match(pattern, "")
	return err == nil && pattern != ""
}

var tokenName = pattern(`^[A-Za-z0-9][A-Za-z0-9._-]{0,62}$`)

// Validate checks everything that does not need the ledger. Errors: Invalid.
func (c CreateToken) Validate(now time.Time) error {
	var fields []Field
	wrong := func(name, format string, args ...any) {
		fields = append(fields, Field{Name: name, Problem: fmt.Sprintf(format, args...)})
	}
	if !IsTokenName(c.Name) {
		wrong("name", "must be 1 to 63 letters, digits, '.', '_' and '-', and not begin with %s", TokenIDPrefix)
	}
	if len(c.Scopes) == 0 {
		wrong("scopes", "must name at least one of %v", Scopes())
	}
	for _, s := range c.Scopes {
		if !slices.Contains(Scopes(), s) {
			wrong("scopes", "%q must be one of %v", s, Scopes())
		}
	}
	if c.Environments != nil && len(c.Environments) == 0 {
		wrong("environments", "must not be empty; leave it out for all environments")
	}
	for _, pattern := range c.Environments {
		if !IsEnvironmentPattern(pattern) {
			wrong("environments", "%q is not a pattern of environment ids such as catan-*", pattern)
		}
	}
	fields = append(fields, ceilingFields(c.Ceiling, c.Environments)...)
	if !c.ExpiresAt.IsZero() && !c.ExpiresAt.After(now) {
		wrong("expires_at", "must be in the future")
	}
	return InvalidFields("token", fields)
}

// Unlimited reports whether the patterns match every environment: the list is empty, or contains "*".
func Unlimited(patterns []string) bool { return len(patterns) == 0 || slices.Contains(patterns, "*") }

// ceilingFields returns the problems of a ceiling for a token with these environments.
func ceilingFields(c Ceiling, environments []string) []Field {
	if !c.IsZero() && Unlimited(environments) {
		return []Field{{"ceiling", "requires a token with environments: a token without them has no limits"}}
	}
	return c.fields()
}

// CheckCeiling rejects a ceiling that a token with these environments cannot have. Errors: Invalid.
func CheckCeiling(c Ceiling, environments []string) error {
	return InvalidFields("token", ceilingFields(c, environments))
}

// RotateToken asks for a successor of a token, with the same name, scopes and environments.
type RotateToken struct {
	Name string
	// Ceiling is the ceiling of the new token; nil keeps the previous one.
	Ceiling *Ceiling
	// Overlap is how long the existing tokens of the name stay valid; zero revokes them at once.
	Overlap Duration
}

// CreatedToken is a new token. Only this answer contains its text.
type CreatedToken struct {
	Token
	Text Secret `json:"token"`
}

// TokenChange is the data of the token.* events.
type TokenChange struct {
	ID           string    `json:"id"`
	Name         string    `json:"name"`
	Scopes       []Scope   `json:"scopes"`
	Environments []string  `json:"environments,omitempty"`
	Ceiling      Ceiling   `json:"ceiling,omitzero"`
	ExpiresAt    time.Time `json:"expires_at,omitzero"`
}
