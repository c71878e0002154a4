package webhook

import (
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base64"
	"fmt"
	"path"
	"regexp"
	"slices"
	"strings"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/sandbox"
)

// minToken is the shortest token accepted, in characters: 24 of base64 carry 144 bits.
const minToken = 24

var tokenName = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]{0,62}$`)

// Token is a bearer token that a receiver accepts. It holds the token's SHA-256, never the token.
type Token struct {
	// Name says who has the token; it appears in events, owners and logs.
	Name string
	// Environments are patterns (as path.Match has them) of the environments that it may touch.
	// None means all of them, and what belongs to no environment.
	Environments []string
	hash         [sha256.Size]byte
}

// NewToken issues a token: 32 random bytes in base64url.
func NewToken() string {
	b := make([]byte, 32)
	_, _ = rand.Read(b) // never fails since Go 1.24
	return base64.RawURLEncoding.EncodeToString(b)
}

// MakeToken makes an accepted token out of its text. Errors: Invalid; they do not repeat the text.
func MakeToken(name, text string, environments ...string) (Token, error) {
	if !tokenName.MatchString(name) {
		return Token{}, sandbox.Errorf(sandbox.Invalid, "token name %q: must be 1 to 63 letters, digits, '.', '_' and '-'", name)
	}
	if len(text) < minToken {
		return Token{}, sandbox.Errorf(sandbox.Invalid, "token %s has %d characters, fewer than %d: generate one with `openssl rand -base64 32`", name, len(text), minToken)
	}
	for _, pattern := range environments {
		if _, err := path.Match(pattern, ""); err != nil || pattern == "" {
			return Token{}, sandbox.Errorf(sandbox.Invalid, "token %s: %q is not a pattern of environment ids such as catan-*", name, pattern)
		}
	}
	return Token{Name: name, Environments: environments, hash: sha256.Sum256([]byte(text))}, nil
}

// Allows reports whether the token may touch an environment; "" stands for all of them.
func (t Token) Allows(environmentID string) bool {
	if len(t.Environments) == 0 {
		return true
	}
	return environmentID != "" && slices.ContainsFunc(t.Environments, func(pattern string) bool {
		ok, err := path.Match(pattern, environmentID)
		return ok && err == nil // MakeToken has checked the pattern
	})
}

// Source names the token as the origin of a delivery or as an owner: "token:<name>".
func (t Token) Source() string { return "token:" + t.Name }

func (t Token) String() string {
	return fmt.Sprintf("token %s (%s)", t.Name, strings.Join(append([]string{"hidden"}, t.Environments...), " "))
}

// GoString implements fmt.GoStringer.
func (t Token) GoString() string { return t.String() }

// Tokens are the tokens that a receiver accepts.
type Tokens []Token

// Lookup finds the token with the given text. Its time does not depend on which one matches.
func (ts Tokens) Lookup(text string) (Token, bool) {
	hash, found := sha256.Sum256([]byte(text)), -1
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
