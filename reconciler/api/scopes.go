package api

import (
	"fmt"
	"slices"
	"strings"

	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

const scopesText = "A token has scopes: read, lease (includes read), conditions, admin (includes all). " +
	"A token may be limited to environments, and then has no access to others."

// needs sets the required scope of a route and adds it to the document. Reading the ledger or a backend needs read.
// Running something in a sandbox or waking it needs lease. Changing what others lease needs admin. New reports an
// operation without a scope as an error.
func (d *document) needs(scope sandbox.Scope, operationID, route string) []map[string][]string {
	if !slices.Contains(sandbox.Scopes(), scope) && d.err == nil {
		d.err = fmt.Errorf("operation %s has no scope", operationID)
	}
	d.server.scopes[route], d.server.operations[operationID] = scope, scope
	return []map[string][]string{{"token": {string(scope)}}}
}

// scopeMissing is the error for a token without the needed scope.
func scopeMissing(t Token, needed sandbox.Scope) error {
	if t.User {
		return sandbox.Errorf(sandbox.Forbidden, "user %s has the role %s, but the request needs %s",
			t.Name, t.Scopes[0], needed).WithReason(sandbox.ReasonScopeMissing)
	}
	has := make([]string, len(t.Scopes))
	for i, s := range t.Scopes {
		has[i] = string(s)
	}
	return sandbox.Errorf(sandbox.Forbidden, "token %s has the scopes %s, but the request needs %s",
		t.Name, strings.Join(has, ", "), needed).
		WithReason(sandbox.ReasonScopeMissing)
}
