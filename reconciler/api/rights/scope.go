package rights

import (
	"strings"

	"github.com/sandbox-lease/terraform-provider-sandbox/reconciler/access"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// ScopeMissing is the error for a token without the needed scope.
func ScopeMissing(t access.Token, needed sandbox.Scope) error {
	if t.User {
		return sandbox.Errorf(sandbox.Forbidden, "user %s has the role %s, but the request needs %s",
			t.Name, t.Scopes[0], needed).WithReason(sandbox.ReasonScopeMissing)
	}
	has := make([]string, len(t.Scopes))
	for i, s := range t.Scopes {
		has[i] = string(s)
	}
	scopes := "scopes"
	if len(has) == 1 {
		scopes = "scope"
	}
	return sandbox.Errorf(sandbox.Forbidden, "token %s has the %s %s, but the request needs %s",
		t.Name, scopes, strings.Join(has, ", "), needed).
		WithReason(sandbox.ReasonScopeMissing)
}
