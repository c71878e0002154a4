package sandbox

import "context"

// Actor is who asked for a change, as events tell it. The zero Actor is the service itself.
type Actor struct {
	// Name is "token:<name>" or "secret:<id>" of who asked over HTTP, or who works on the ledger itself.
	Name string
	// Address is where the request came from, "" when that was no network.
	Address string
}

type actorKey struct{}

// WithActor says on whose behalf everything is done with the context. Events of changes carry it.
func WithActor(ctx context.Context, a Actor) context.Context {
	return context.WithValue(ctx, actorKey{}, a)
}

// ActorOf returns on whose behalf things are done with the context.
func ActorOf(ctx context.Context) Actor {
	a, _ := ctx.Value(actorKey{}).(Actor)
	return a
}
