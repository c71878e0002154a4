package sandbox

import (
	"crypto/rand"
	"fmt"
	"regexp"
	"strings"
	"sync"
)

var envName = pattern(`^[A-Za-z_][A-Za-z0-9_]*$`)

// The names in every condition are checked by loops: regular expressions take ten times as long.

// isEnvironmentID reports whether v matches [a-z0-9][a-z0-9._-]{0,62}.
func isEnvironmentID(v string) bool {
	return v != "" && len(v) <= 63 && isLower(v[0]) &&
		all(v[1:], func(c byte) bool { return isLower(c) || c == '.' || c == '_' || c == '-' })
}

// isAgentDID reports whether v matches did:[a-z0-9]+:[A-Za-z0-9._:%-]{1,200}.
func isAgentDID(v string) bool {
	rest, isDID := strings.CutPrefix(v, "did:")
	method, id, hasID := strings.Cut(rest, ":")
	return isDID && hasID && method != "" && all(method, isLower) && id != "" && len(id) <= 200 &&
		all(id, func(c byte) bool { return isAlphanumeric(c) || strings.IndexByte("._:%-", c) >= 0 })
}

// isConditionName reports whether v matches [a-zA-Z0-9_]+(\.[a-zA-Z0-9_]+)+.
func isConditionName(v string) bool {
	return strings.Contains(v, ".") && v[0] != '.' && v[len(v)-1] != '.' && !strings.Contains(v, "..") &&
		all(v, func(c byte) bool { return isAlphanumeric(c) || c == '_' || c == '.' })
}

// isLower reports whether c is a lower-case letter or a digit.
func isLower(c byte) bool { return c >= 'a' && c <= 'z' || c >= '0' && c <= '9' }

func isAlphanumeric(c byte) bool { return isLower(c) || c >= 'A' && c <= 'Z' }

// all reports whether is holds for every byte of v.
func all(v string, is func(c byte) bool) bool {
	for i := range len(v) {
		if !is(v[i]) {
			return false
		}
	}
	return true
}

// Base32 of RFC 4648 in lower case: safe in host names, container names and file names.
const idAlphabet = "abcdefghijklmnopqrstuvwxyz234567"

// IDs issues identifiers of n characters. It is injected, so that tests can predict them.
type IDs func(n int) string

// RandomIDs issues n random characters of [a-z2-7], 5 bits each.
func RandomIDs(n int) string {
	b := make([]byte, n)
	_, _ = rand.Read(b) // never fails since Go 1.24
	for i := range b {
		b[i] = idAlphabet[b[i]&31]
	}
	return string(b)
}

// Lengths of issued identifiers, in characters of 5 bits.
const (
	SandboxIDLength = 26 // 130 bits: no collisions
	LedgerIDLength  = 16 // 80 bits: distinguishes the ledgers of one engine
)

// LeaseID returns the id of an agent's lease in an environment: "<agent_did>::<environment_id>".
func LeaseID(agentDID, environmentID string) string { return agentDID + "::" + environmentID }

// ParseLeaseID splits a lease id. Errors: Invalid.
func ParseLeaseID(id string) (agent, environment string, err error) {
	i := strings.LastIndex(id, "::")
	if i < 0 || !isAgentDID(id[:i]) || !isEnvironmentID(id[i+2:]) {
		return "", "", Errorf(Invalid,
			"lease id %q is not of the form <agent_did>::<environment_id>, such as did:plc:abc::catan-7", id)
	}
	return id[:i], id[i+2:], nil
}

// checkEnvironmentID, checkAgentDID and checkCondition append the problem of a value to fields.
func checkEnvironmentID(fields []Field, name, v string) []Field {
	if !isEnvironmentID(v) {
		return append(fields,
			Field{name, "must be 1 to 63 characters of a-z, 0-9, '.', '_' and '-', and start with a letter or digit"})
	}
	return fields
}

func checkAgentDID(fields []Field, name, v string) []Field {
	if !isAgentDID(v) || strings.Contains(v, "::") {
		problem := fmt.Sprintf("must be a DID such as did:plc:abc, at most 200 characters after the method, without \"::\", "+
			"not %.100q", v)
		if normal := normalDID(v); normal != v && isAgentDID(normal) && !strings.Contains(normal, "::") {
			problem = "must be in its normal form, " + normal
		}
		return append(fields, Field{name, problem})
	}
	return fields
}

// normalDID returns a DID without surrounding spaces, and with its scheme and method in lower case (DID Core 1.0,
// section 3.1). The rest is case-sensitive.
func normalDID(v string) string {
	v = strings.TrimSpace(v)
	scheme, rest, _ := strings.Cut(v, ":")
	method, id, _ := strings.Cut(rest, ":")
	return strings.ToLower(scheme) + ":" + strings.ToLower(method) + ":" + id
}

func checkCondition(fields []Field, name, v string) []Field {
	if !isConditionName(v) || len(v) > 128 {
		return append(fields,
			Field{name, "must be a dotted name such as game.finished, of letters, digits and '_', at most 128 characters"})
	}
	return fields
}

// pattern compiles a regular expression at its first use. Every guest process contains this package and uses few of its
// patterns. Compiled at the start, they would take 420 KB in each.
func pattern(text string) func() *regexp.Regexp {
	return sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(text) })
}
