package sandbox

import (
	"crypto/rand"
	"regexp"
	"strings"
)

var (
	environmentID = regexp.MustCompile(`^[a-z0-9][a-z0-9._-]{0,62}$`)
	agentDID      = regexp.MustCompile(`^did:[a-z0-9]+:[A-Za-z0-9._:%-]{1,200}$`)
	conditionName = regexp.MustCompile(`^[a-zA-Z0-9_]+(\.[a-zA-Z0-9_]+)+$`)
	envName       = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*$`)
)

// base32 of RFC 4648 in lower case: safe in host names, container names and file names.
const idAlphabet = "abcdefghijklmnopqrstuvwxyz234567"

// IDs issues identifiers. It is injected so that tests can foresee them.
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
	SandboxIDLength = 26 // 130 bits: never issued twice
	LedgerIDLength  = 16 // 80 bits: tells the ledgers of one engine apart
)

// LeaseID returns the id of an agent's lease in an environment: "<agent_did>::<environment_id>".
func LeaseID(agentDID, environmentID string) string { return agentDID + "::" + environmentID }

// ParseLeaseID splits a lease id. Errors: Invalid.
func ParseLeaseID(id string) (agent, environment string, err error) {
	i := strings.LastIndex(id, "::")
	if i < 0 || !agentDID.MatchString(id[:i]) || !environmentID.MatchString(id[i+2:]) {
		return "", "", Errorf(Invalid, "lease id %q is not of the form <agent_did>::<environment_id>, such as did:plc:abc::catan-7", id)
	}
	return id[:i], id[i+2:], nil
}

// checkEnvironmentID, checkAgentDID and checkCondition append to fields what is wrong with a value.
func checkEnvironmentID(fields []Field, name, v string) []Field {
	if !environmentID.MatchString(v) {
		return append(fields, Field{name, "must be 1 to 63 characters of a-z, 0-9, '.', '_' and '-', and begin with a letter or digit"})
	}
	return fields
}

func checkAgentDID(fields []Field, name, v string) []Field {
	if !agentDID.MatchString(v) || strings.Contains(v, "::") {
		return append(fields, Field{name, "must be a DID such as did:plc:abc, at most 200 characters after the method, without \"::\""})
	}
	return fields
}

func checkCondition(fields []Field, name, v string) []Field {
	if !conditionName.MatchString(v) || len(v) > 128 {
		return append(fields, Field{name, "must be a dotted name such as game.finished, of letters, digits and '_', at most 128 characters"})
	}
	return fields
}
