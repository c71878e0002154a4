package storage

import "context"

type essentialKey struct{}

// Essential marks work that must continue on a full disk: its writes may use the reserve.
func Essential(ctx context.Context) context.Context {
	return context.WithValue(ctx, essentialKey{}, true)
}

func isEssential(ctx context.Context) bool { return ctx.Value(essentialKey{}) != nil }
