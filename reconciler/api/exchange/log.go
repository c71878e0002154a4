package exchange

import (
	"context"
	"log/slog"
)

// LogHandler adds the id, the caller and the address of the request to each log line in the context of a request.
func LogHandler(h slog.Handler) slog.Handler { return requestLog{h} }

type requestLog struct{ slog.Handler }

// Handle implements slog.Handler.
func (l requestLog) Handle(ctx context.Context, r slog.Record) error {
	if x, ok := ctx.Value(key{}).(*Exchange); ok {
		r = r.Clone()
		r.AddAttrs(slog.String("request_id", x.ID), slog.String("caller", x.Caller), slog.String("remote", x.Remote))
	}
	return l.Handler.Handle(ctx, r)
}

// WithAttrs implements slog.Handler.
func (l requestLog) WithAttrs(attrs []slog.Attr) slog.Handler {
	return requestLog{l.Handler.WithAttrs(attrs)}
}

// WithGroup implements slog.Handler.
func (l requestLog) WithGroup(name string) slog.Handler { return requestLog{l.Handler.WithGroup(name)} }
