package access

import (
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base64"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// minToken is the minimum length of a token, in characters: 24 of base64 hold 144 bits.
const minToken = 24

// Token is a bearer token that a receiver accepts. It holds the token's SHA-256, never the token.
type Token struct {
	// ID is its id in the ledger; a token of a file has none.
	ID string
	// Name names the holder of the token in events, owners and logs.
	Name string
	// User says that this is not a token: it holds the rights of the user Name of an OpenID Connect provider.
	User bool
	// Environments are patterns (see path.Match) of the environments that it may touch. None means everything.
	Environments []string
	// Ceiling limits what it may request if Environments limit it.
	Ceiling sandbox.Ceiling
	// Scopes are its rights. None means all: a file may omit them.
	Scopes []sandbox.Scope
	// NotAfter is when it stops being accepted; zero means never.
	NotAfter time.Time
	hash     Hash
}

// Hash is the SHA-256 of a token's text. The text has 256 random bits, too many for a brute-force attack.
type Hash [sha256.Size]byte

// HashOf returns the hash of a token's text.
func HashOf(text string) Hash { return sha256.Sum256([]byte(text)) }

// tokenPrefix lets secret scanners recognize a token.
const tokenPrefix = "sbl_"

// NewToken returns a new token: a prefix and 32 random bytes in base64url.
func NewToken() string {
	b := make([]byte, 32)
	_, _ = rand.Read(b) // never fails since Go 1.24
	return tokenPrefix + base64.RawURLEncoding.EncodeToString(b)
}

// MakeToken returns the token with a text. Errors: Invalid; they do not quote the text.
func MakeToken(name, text string, environments ...string) (Token, error) {
	if !sandbox.IsTokenName(name) {
		return Token{}, sandbox.Errorf(sandbox.Invalid,
			"token name %q: must be 1 to 63 letters, digits, '.', '_' and '-', and must not start with %s",
			name, sandbox.TokenIDPrefix)
	}
	if len(text) < minToken {
		return Token{}, sandbox.Errorf(sandbox.Invalid,
			"token %s has %d characters, fewer than %d: generate one with `openssl rand -base64 32`", name, len(text), minToken)
	}
	for _, pattern := range environments {
		if !sandbox.IsEnvironmentPattern(pattern) {
			return Token{}, sandbox.Errorf(sandbox.Invalid, "token %s: %q is not a pattern of environment ids such as catan-*",
				name, pattern)
		}
	}
	return Token{Name: name, Environments: environments, hash: HashOf(text)}, nil
}

// Allows reports whether the token may touch an environment; "" means all environments.
func (t Token) Allows(environmentID string) bool {
	if len(t.Environments) == 0 {
		return true
	}
	return environmentID != "" && sandbox.MatchesEnvironment(t.Environments, environmentID)
}

// Tenant returns the tenant of the token, nil for an operator's token without a limit to environments.
func (t Token) Tenant() *sandbox.Tenant {
	if sandbox.Unlimited(t.Environments) {
		return nil
	}
	return &sandbox.Tenant{Name: t.Name, Environments: t.Environments, Ceiling: t.Ceiling}
}

// Permits reports whether the token has a scope.
func (t Token) Permits(needed sandbox.Scope) bool {
	return len(t.Scopes) == 0 || slices.ContainsFunc(t.Scopes, func(s sandbox.Scope) bool { return s.Holds(needed) })
}

// Expired reports whether the token is no longer accepted.
func (t Token) Expired(now time.Time) bool { return !t.NotAfter.IsZero() && !now.Before(t.NotAfter) }

// Source names the token as the origin of a delivery or as an owner: "token:<name>", or "oidc:<name>" for a user.
func (t Token) Source() string {
	if t.User {
		return "oidc:" + t.Name
	}
	return "token:" + t.Name
}

func (t Token) String() string {
	return fmt.Sprintf("token %s (%s)", t.Name, strings.Join(append([]string{"hidden"}, t.Environments...), " "))
}

// GoString implements fmt.GoStringer.
func (t Token) GoString() string { return t.String() }

// Tokens are the tokens that a receiver accepts.
type Tokens []Token

// Lookup finds the token with the hash, in a time that does not depend on the match.
func (ts Tokens) Lookup(hash Hash) (Token, bool) {
	found := -1
	for i := range ts {
		if subtle.ConstantTimeCompare(hash[:], ts[i].hash[:]) == 1 {
			found = i
		}
	}
	if found < 0 {
		return Token{}, false
	}
	return ts[found], true
}
