// Package rights says what a token may touch, and what it may do there.
package rights

import (
	"context"
	"strings"

	"github.com/sandbox-lease/terraform-provider-sandbox/reconciler/access"
	"github.com/sandbox-lease/terraform-provider-sandbox/reconciler/api/exchange"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// Target is what a request touches. A token limited to environments is checked against it. Environment, Lease,
// Everything and Nothing return one. The zero value is always rejected.
type Target struct {
	check func(ctx context.Context, token access.Token) error
}

// Environment is the target of a request for one environment; "" means all environments.
func Environment(id string) Target {
	return Target{func(ctx context.Context, token access.Token) error {
		exchange.Of(ctx).About("", id)
		switch {
		case token.Allows(id):
			return nil
		case id == "":
			err := notAllowed("token %s is limited to the environments %s", token.Name, strings.Join(token.Environments, ", "))
			err.Fields = []sandbox.Field{{Name: "environment_id", Problem: "must be set to one of them"}}
			return err
		default:
			return notAllowed("token %s may not use environment %s, only %s",
				token.Name, id, strings.Join(token.Environments, ", "))
		}
	}}
}

// Lease is the target of a request for one lease.
func Lease(id string) Target {
	return Target{func(ctx context.Context, token access.Token) error {
		exchange.Of(ctx).About(id, "")
		if len(token.Environments) == 0 {
			return nil
		}
		_, environment, err := sandbox.ParseLeaseID(id)
		if err != nil {
			return err
		}
		return Environment(environment).check(ctx, token)
	}}
}

// Everything is the target of a request that concerns all environments. what names the operation in the error.
func Everything(what string) Target {
	return Target{func(_ context.Context, token access.Token) error {
		if token.Allows("") {
			return nil
		}
		return notAllowed("token %s is limited to the environments %s: %s needs an unlimited token",
			token.Name, strings.Join(token.Environments, ", "), what)
	}}
}

// Nothing is the target of a request that is open to every token, or that filters its response by the limit.
func Nothing() Target {
	return Target{func(context.Context, access.Token) error { return nil }}
}

// ReportOn is the target of a report on an environment, on a lease, or on everything.
func ReportOn(environmentID, leaseID string) Target {
	if environmentID == "" && leaseID != "" {
		return Lease(leaseID)
	}
	return Environment(environmentID)
}

// All is the target of a request that touches several.
func All(targets ...Target) Target {
	return Target{func(ctx context.Context, token access.Token) error {
		for _, target := range targets {
			if err := Check(ctx, token, target); err != nil {
				return err
			}
		}
		return nil
	}}
}

// Check checks that the token may touch the target. Errors: Forbidden, Invalid for a bad lease id.
func Check(ctx context.Context, token access.Token, target Target) error {
	if target.check == nil {
		return sandbox.Errorf(sandbox.Forbidden, "the request does not declare its target")
	}
	return target.check(ctx, token)
}

func notAllowed(format string, args ...any) *sandbox.Error {
	return sandbox.Errorf(sandbox.Forbidden, format, args...).WithReason(sandbox.ReasonEnvironmentNotAllowed)
}

type key struct{}

// With returns a context with the token of the authenticated caller.
func With(ctx context.Context, token access.Token) context.Context {
	return context.WithValue(ctx, key{}, token)
}

// TokenOf returns the token of the authenticated caller.
func TokenOf(ctx context.Context) access.Token {
	token, ok := ctx.Value(key{}).(access.Token)
	if !ok { // only authenticate leads to routes that need a token
		panic("api: a request without a caller")
	}
	return token
}

// OwnerFor returns the owner of a new object: the one in the request, or the token.
func OwnerFor(token access.Token, named string) string {
	if named != "" {
		return named
	}
	return token.Source()
}

// Visible returns the environments that the token may touch.
func Visible(token access.Token, all []sandbox.Environment) []sandbox.Environment {
	allowed := make([]sandbox.Environment, 0, len(all))
	for _, e := range all {
		if token.Allows(e.ID) {
			allowed = append(allowed, e)
		}
	}
	return allowed
}
