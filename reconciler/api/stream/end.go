package stream

import (
	"context"
	"net/http"
)

// endKey is the key of the end of streams in a context.
type endKey struct{}

// WithEnd returns a context for requests. Their streams end with end, which may be earlier than their context.
func WithEnd(ctx, end context.Context) context.Context { return context.WithValue(ctx, endKey{}, end) }

// Context returns the context of a stream that answers a request. It ends with the request, and with the end of
// streams if its server has one.
func Context(r *http.Request) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancel(r.Context())
	end, ok := ctx.Value(endKey{}).(context.Context)
	if !ok {
		return ctx, cancel
	}
	stop := context.AfterFunc(end, cancel)
	return ctx, func() {
		stop()
		cancel()
	}
}
