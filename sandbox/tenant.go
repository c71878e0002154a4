package sandbox

import (
	"crypto/sha256"
	"encoding/hex"
	"path"
	"slices"
	"strings"
)

// Tenant is a caller whose token is limited to environments. The operator, whose tokens have no limit, is none: nil.
type Tenant struct {
	// Name is the token's.
	Name string
	// Environments are the patterns of the token: see Token.
	Environments []string
	Ceiling      Ceiling
}

// MatchesEnvironment reports whether one of the patterns, as path.Match has them, matches an environment's id.
func MatchesEnvironment(patterns []string, environmentID string) bool {
	return slices.ContainsFunc(patterns, func(pattern string) bool {
		ok, err := path.Match(pattern, environmentID)
		return ok && err == nil
	})
}

// StateNamespace says whose leases share the states of agents (ScopeAgent). It is the patterns of the token that
// leases, sorted, and empty for the operator. So each environment whose state is in a namespace is one that every
// token of the namespace may touch, and a token that may touch fewer, or others, has another namespace.
type StateNamespace []string

// StateNamespace is the namespace of what the tenant leases.
func (t *Tenant) StateNamespace() StateNamespace {
	if t == nil {
		return nil
	}
	sorted := slices.Clone(t.Environments)
	slices.Sort(sorted)
	return slices.Compact(sorted)
}

// Allows reports whether the tokens of the namespace may touch an environment.
func (n StateNamespace) Allows(environmentID string) bool {
	return len(n) == 0 || MatchesEnvironment(n, environmentID)
}

// key names the state of an agent in the namespace. No DID holds an "@".
func (n StateNamespace) key(agentDID string) string {
	if len(n) == 0 {
		return agentDID
	}
	escaped := make([]string, len(n))
	for i, pattern := range n {
		escaped[i] = escapeComma.Replace(pattern)
	}
	patterns := strings.Join(escaped, ",")
	if len(patterns) > maxNamespaceText {
		sum := sha256.Sum256([]byte(patterns))
		patterns = "sha256:" + hex.EncodeToString(sum[:])
	}
	return agentDID + "@" + patterns
}

// escapeComma keeps a pattern with a comma apart from two patterns.
var escapeComma = strings.NewReplacer("%", "%25", ",", "%2C")

// maxNamespaceText bounds the patterns in a key, which databases index; longer ones stand there by their hash.
const maxNamespaceText = 512
