package sandbox

import "context"

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
