package oidc

import (
	"encoding/json"
	"slices"
	"strings"

	"github.com/sandbox-lease/terraform-provider-sandbox/reconciler/access"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

const (
	// maxGroup and maxGroups limit what the cookie of a login holds: 8 groups of 200 bytes.
	maxGroup  = 200
	maxGroups = 8
)

// roles maps groups to scopes.
type roles map[string]sandbox.Scope

// possible are the scopes that can be roles, the strongest first.
var possible = []sandbox.Scope{sandbox.ScopeAdmin, sandbox.ScopeLease, sandbox.ScopeRead}

// parseRoles parses mappings of the form GROUP=ROLE. The last "=" separates them, because groups of LDAP hold "=".
// Errors: Invalid.
func parseRoles(texts []string) (roles, error) {
	all := roles{}
	for _, text := range texts {
		at := strings.LastIndexByte(text, '=')
		group, role := text[:max(at, 0)], sandbox.Scope(text[at+1:])
		switch {
		case at < 1 || len(group) > maxGroup || !slices.Contains(possible, role):
			return nil, sandbox.Errorf(sandbox.Invalid, "--oidc-role %q: want GROUP=ROLE with a group of at most %d bytes and "+
				"the role read, lease or admin; quote a group with a comma: '\"CN=ops,DC=example=admin\"'", text, maxGroup)
		case all[group] != "":
			return nil, sandbox.Errorf(sandbox.Invalid, "--oidc-role: the group %q has two roles", group)
		}
		all[group] = role
	}
	if len(all) == 0 {
		return nil, sandbox.Errorf(sandbox.Invalid, "--oidc-issuer needs an --oidc-role GROUP=ROLE, or no user can log in")
	}
	return all, nil
}

// of returns the strongest role of the groups, "" for none.
func (r roles) of(groups []string) sandbox.Scope {
	for _, role := range possible {
		if slices.ContainsFunc(groups, func(group string) bool { return r[group] == role }) {
			return role
		}
	}
	return ""
}

// among returns the groups that have a role, the strongest first, and at most maxGroups.
func (r roles) among(groups []string) []string {
	var found []string
	for _, role := range possible {
		for _, group := range groups {
			if r[group] == role && !slices.Contains(found, group) && len(found) < maxGroups {
				found = append(found, group)
			}
		}
	}
	return found
}

// user is what the cookie of a login holds.
type user struct {
	Name   string   `json:"name"`
	Groups []string `json:"groups"`
}

// TokenOf returns the rights of the user of a login, with the current roles. Errors: Unauthenticated if no group of the
// user has a role any more.
func (p *Provider) TokenOf(text string) (access.Token, error) {
	var u user
	if err := json.Unmarshal([]byte(text), &u); err != nil || u.Name == "" {
		return access.Token{}, sandbox.Errorf(sandbox.Unauthenticated, "your login is of another version: log in again").
			WithReason(sandbox.ReasonLoginEnded)
	}
	role := p.settings.Load().roles.of(u.Groups)
	if role == "" {
		return access.Token{}, sandbox.Errorf(sandbox.Unauthenticated,
			"no group of %s has a role any more: log in again", u.Name).WithReason(sandbox.ReasonLoginEnded)
	}
	return access.Token{Name: u.Name, User: true, Scopes: []sandbox.Scope{role}}, nil
}
