package api

import (
	"context"
	"strings"

	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// Target is what a request touches. A token limited to environments is checked against it. Environment, Lease,
// Everything and Nothing return one. The zero value is always rejected.
type Target struct {
	check func(ctx context.Context, token Token) error
}

// Environment is the target of a request for one environment; "" means all environments.
func Environment(id string) Target {
	return Target{func(ctx context.Context, token Token) error {
		exchangeOf(ctx).about("", id)
		switch {
		case token.Allows(id):
			return nil
		case id == "":
			return notAllowed("token %s is limited to the environments %s: set environment_id to one of them",
				token.Name, strings.Join(token.Environments, ", "))
		default:
			return notAllowed("token %s may not use environment %s, only %s",
				token.Name, id, strings.Join(token.Environments, ", "))
		}
	}}
}

// Lease is the target of a request for one lease.
func Lease(id string) Target {
	return Target{func(ctx context.Context, token Token) error {
		exchangeOf(ctx).about(id, "")
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
	return Target{func(_ context.Context, token Token) error {
		if token.Allows("") {
			return nil
		}
		return notAllowed("token %s is limited to the environments %s: %s needs an unlimited token",
			token.Name, strings.Join(token.Environments, ", "), what)
	}}
}

// Nothing is the target of a request that is open to every token, or that filters its response by the limit.
func Nothing() Target {
	return Target{func(context.Context, Token) error { return nil }}
}

// reportOn is the target of a report on an environment, on a lease, or on everything.
func reportOn(environmentID, leaseID string) Target {
	if environmentID == "" && leaseID != "" {
		return Lease(leaseID)
	}
	return Environment(environmentID)
}

// permit checks that the token may touch the target. Errors: Forbidden, Invalid for a bad lease id.
func permit(ctx context.Context, token Token, target Target) error {
	if target.check == nil {
		return sandbox.Errorf(sandbox.Forbidden, "the request does not declare its target")
	}
	return target.check(ctx, token)
}

func notAllowed(format string, args ...any) error {
	return sandbox.Errorf(sandbox.Forbidden, format, args...).WithReason(sandbox.ReasonEnvironmentNotAllowed)
}

// toucher is an input that declares the target of its request. A route without one does not compile.
type toucher interface{ touches() Target }

// input is a pointer to an input type, which huma fills.
type input[I any] interface {
	*I
	toucher
}

// tokenOfCaller returns the token of the authenticated caller.
func tokenOfCaller(ctx context.Context) Token {
	token, ok := ctx.Value(tokenKey).(Token)
	if !ok { // only authenticate leads to routes that need a token
		panic("api: a request without a caller")
	}
	return token
}

// ownerFor returns the owner of a new object: the one in the request, or the token.
func ownerFor(token Token, named string) string {
	if named != "" {
		return named
	}
	return token.Source()
}

// visible returns the environments that the token may touch.
func visible(token Token, all []sandbox.Environment) []sandbox.Environment {
	allowed := make([]sandbox.Environment, 0, len(all))
	for _, e := range all {
		if token.Allows(e.ID) {
			allowed = append(allowed, e)
		}
	}
	return allowed
}
