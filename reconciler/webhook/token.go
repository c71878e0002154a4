package webhook

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

// minToken is the shortest token accepted, in characters: 24 of base64 carry 144 bits.
const minToken = 24

// Token is a bearer token that a receiver accepts. It holds the token's SHA-256, never the token.
type Token struct {
	// ID names it in the ledger; a token of a file has none.
	ID string
	// Name says who has the token; it appears in events, owners and logs.
	Name string
	// Environments are patterns (as path.Match has them) of the environments that it may touch.
	// None means all of them, and what belongs to no environment.
	Environments []string
	// Ceiling bounds what it may ask for where Environments limit it.
	Ceiling sandbox.Ceiling
	// Scopes are what it allows. None means everything: a file may leave them out.
	Scopes []sandbox.Scope
	// NotAfter is when it stops being accepted; zero means never.
	NotAfter time.Time
	hash     Hash
}

// Hash is what is kept of a token's text, which has 256 random bits: too many to try.
type Hash [sha256.Size]byte

// HashOf returns the hash of a token's text.
func HashOf(text string) Hash { return sha256.Sum256([]byte(text)) }

// tokenPrefix lets scanners for secrets know a token when they see one.
const tokenPrefix = "sbl_"

// NewToken issues a token: a prefix and 32 random bytes in base64url.
func NewToken() string {
	b := make([]byte, 32)
	_, _ = rand.Read(b) // never fails since Go 1.24
	return tokenPrefix + base64.RawURLEncoding.EncodeToString(b)
}

// MakeToken makes an accepted token out of its text. Errors: Invalid; they do not repeat the text.
func MakeToken(name, text string, environments ...string) (Token, error) {
	if !sandbox.IsTokenName(name) {
		return Token{}, sandbox.Errorf(sandbox.Invalid, "token name %q: must be 1 to 63 letters, digits, '.', '_' and '-', and not begin with %s", name, sandbox.TokenIDPrefix)
	}
	if len(text) < minToken {
		return Token{}, sandbox.Errorf(sandbox.Invalid, "token %s has %d characters, fewer than %d: generate one with `openssl rand -base64 32`", name, len(text), minToken)
	}
	for _, pattern := range environments {
		if !sandbox.IsEnvironmentPattern(pattern) {
			return Token{}, sandbox.Errorf(sandbox.Invalid, "token %s: %q is not a pattern of environment ids such as catan-*", name, pattern)
		}
	}
	return Token{Name: name, Environments: environments, hash: HashOf(text)}, nil
}

// Allows reports whether the token may touch an environment; "" stands for all of them.
func (t Token) Allows(environmentID string) bool {
	if len(t.Environments) == 0 {
		return true
	}
	return environmentID != "" && sandbox.MatchesEnvironment(t.Environments, environmentID)
}

// Tenant is who asks with the token, nil where it is the operator's: one without a limit to environments.
func (t Token) Tenant() *sandbox.Tenant {
	if sandbox.Unlimited(t.Environments) {
		return nil
	}
	return &sandbox.Tenant{Name: t.Name, Environments: t.Environments, Ceiling: t.Ceiling}
}

// Permits reports whether the token allows what needs a scope.
func (t Token) Permits(needed sandbox.Scope) bool {
	return len(t.Scopes) == 0 || slices.ContainsFunc(t.Scopes, func(s sandbox.Scope) bool { return s.Holds(needed) })
}

// Expired reports whether the token is no longer accepted.
func (t Token) Expired(now time.Time) bool { return !t.NotAfter.IsZero() && !now.Before(t.NotAfter) }

// Source names the token as the origin of a delivery or as an owner: "token:<name>".
func (t Token) Source() string { return "token:" + t.Name }

func (t Token) String() string {
	return fmt.Sprintf("token %s (%s)", t.Name, strings.Join(append([]string{"hidden"}, t.Environments...), " "))
}

// GoString implements fmt.GoStringer.
func (t Token) GoString() string { return t.String() }

// Tokens are the tokens that a receiver accepts.
type Tokens []Token

// Lookup finds the token whose text has the hash. Its time does not depend on which one matches.
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
