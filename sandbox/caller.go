package sandbox

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"path"
	"slices"
	"strings"
)

// Tenant is a caller whose token is limited to environments. Operators' tokens have no limit: a nil Tenant.
type Tenant struct {
	// Name is the token's name.
	Name string
	// Environments are the token's patterns; see Token.
	Environments []string
	Ceiling      Ceiling
}

// MatchesEnvironment reports whether one of the path.Match patterns matches an environment's id.
func MatchesEnvironment(patterns []string, environmentID string) bool {
	return slices.ContainsFunc(patterns, func(pattern string) bool {
		ok, err := path.Match(pattern, environmentID)
		return ok && err == nil
	})
}

// SnapshotNamespace says which leases share the snapshots of agents (ScopeAgent). It holds the sorted patterns
// of the leasing token and is empty for the operator. So every token of a namespace may touch each environment
// whose snapshots are in it. A token that may touch fewer or other environments has another namespace.
type SnapshotNamespace []string

// SnapshotNamespace returns the namespace of the tenant's leases.
func (t *Tenant) SnapshotNamespace() SnapshotNamespace {
	if t == nil {
		return nil
	}
	sorted := slices.Clone(t.Environments)
	slices.Sort(sorted)
	return slices.Compact(sorted)
}

// Allows reports whether tokens of the namespace may touch an environment.
func (n SnapshotNamespace) Allows(environmentID string) bool {
	return len(n) == 0 || MatchesEnvironment(n, environmentID)
}

// key names the snapshot of an agent in the namespace. No DID contains "@".
func (n SnapshotNamespace) key(agentDID string) string {
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

// escapeComma makes a pattern with a comma distinct from two patterns.
var escapeComma = strings.NewReplacer("%", "%25", ",", "%2C")

// maxNamespaceText limits the patterns in a key, because databases index it. Longer ones are replaced by their
// hash.
const maxNamespaceText = 512

// Actor is the caller that requested a change. Events record it. The zero Actor is the service itself.
type Actor struct {
	// Name is "token:<name>", "oidc:<user>" or "secret:<id>" for HTTP callers, or names who works on the ledger directly.
	Name string
	// Address is the caller's network address, "" if the request came over no network.
	Address string
}

type actorKey struct{}

// WithActor returns a context whose changes are made on behalf of a. Events record the actor.
func WithActor(ctx context.Context, a Actor) context.Context {
	return context.WithValue(ctx, actorKey{}, a)
}

// ActorOf returns the actor of the context.
func ActorOf(ctx context.Context) Actor {
	a, _ := ctx.Value(actorKey{}).(Actor)
	return a
}
