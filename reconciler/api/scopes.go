package api

import (
	"fmt"
	"strings"

	"github.com/danielgtaylor/huma/v2"

	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

const scopesText = "A token has scopes: read, lease (which holds read), conditions, admin (which holds all). " +
	"It may be limited to environments, and then reaches nothing that concerns others."

// scopes is the one place that says which scope each operation needs. What reads the ledger, or looks at a
// backend, is read; what runs in a sandbox, or wakes one, is lease; what changes what others lease is admin.
var scopes = map[string]sandbox.Scope{
	"list-environments": sandbox.ScopeRead, "get-environment": sandbox.ScopeRead,
	"list-leases": sandbox.ScopeRead, "get-lease": sandbox.ScopeRead, "lease-usage": sandbox.ScopeRead, "lease-usage-history": sandbox.ScopeRead, "lease-health": sandbox.ScopeRead,
	"list-execs": sandbox.ScopeRead, "get-exec": sandbox.ScopeRead, "read-exec": sandbox.ScopeRead,
	"list-sessions": sandbox.ScopeRead, "get-session": sandbox.ScopeRead, "list-session-events": sandbox.ScopeRead,
	"list-processes": sandbox.ScopeRead, "get-process": sandbox.ScopeRead,
	"list-states": sandbox.ScopeRead, "list-events": sandbox.ScopeRead, "get-costs": sandbox.ScopeRead, "list-drift": sandbox.ScopeRead, "list-deliveries": sandbox.ScopeRead,
	"get-ledger": sandbox.ScopeRead, "audit": sandbox.ScopeRead, "metrics": sandbox.ScopeRead,

	"acquire-lease": sandbox.ScopeLease, "acquire-leases": sandbox.ScopeLease, "renew-lease": sandbox.ScopeLease, "release-lease": sandbox.ScopeLease, "delete-lease": sandbox.ScopeLease,
	"sleep-lease": sandbox.ScopeLease, "wake-lease": sandbox.ScopeLease, "run": sandbox.ScopeLease,
	"exec": sandbox.ScopeLease, "cancel-exec": sandbox.ScopeLease,
	"create-session": sandbox.ScopeLease, "close-session": sandbox.ScopeLease, "exec-in-session": sandbox.ScopeLease,
	"start-process": sandbox.ScopeLease, "kill-process": sandbox.ScopeLease, "wait-process": sandbox.ScopeLease, "read-process": sandbox.ScopeLease,
	"write-files": sandbox.ScopeLease, "read-files": sandbox.ScopeLease, "remove-file": sandbox.ScopeLease,
	"list-files": sandbox.ScopeLease, "stat-file": sandbox.ScopeLease,

	"post-condition": sandbox.ScopeConditions,

	"put-environment": sandbox.ScopeAdmin, "delete-environment": sandbox.ScopeAdmin, "reopen-environment": sandbox.ScopeAdmin,
	"delete-state": sandbox.ScopeAdmin, "sweep": sandbox.ScopeAdmin, "adopt": sandbox.ScopeAdmin,
	"list-tokens": sandbox.ScopeAdmin, "create-token": sandbox.ScopeAdmin, "rotate-token": sandbox.ScopeAdmin, "revoke-token": sandbox.ScopeAdmin,
}

// security says which token an operation of huma's needs.
func (d *document) security(op huma.Operation) []map[string][]string {
	return d.needs(op.OperationID, op.Method+" "+op.Path)
}

// needs has an operation's route refuse tokens without its scope, and says so in the document. An operation
// that stands not in scopes is a mistake of ours, which New reports.
func (d *document) needs(operationID, route string) []map[string][]string {
	scope, ok := scopes[operationID]
	if !ok && d.err == nil {
		d.err = fmt.Errorf("operation %s has no scope", operationID)
	}
	d.server.scopes[route] = scope
	return []map[string][]string{{"token": {string(scope)}}}
}

// scopeMissing refuses a token for what it lacks.
func scopeMissing(t Token, needed sandbox.Scope) error {
	has := make([]string, len(t.Scopes))
	for i, s := range t.Scopes {
		has[i] = string(s)
	}
	return sandbox.Errorf(sandbox.Forbidden, "token %s has the scopes %s, and this needs %s", t.Name, strings.Join(has, ", "), needed).
		WithReason(sandbox.ReasonScopeMissing)
}
