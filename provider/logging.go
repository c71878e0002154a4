package provider

import (
	"context"
	"log/slog"

	"github.com/hashicorp/terraform-plugin-log/tflog"
)

// logger writes to Terraform's log (TF_LOG) through ctx. It stays valid after the request has ended.
func logger(ctx context.Context) *slog.Logger {
	return slog.New(handler{ctx: context.WithoutCancel(ctx)})
}

// handler is an slog.Handler. Groups are flattened.
type handler struct {
	ctx   context.Context //nolint:containedctx // it is where tflog keeps its logger
	attrs []slog.Attr
}

// Enabled leaves the choice of a level to TF_LOG.
func (h handler) Enabled(context.Context, slog.Level) bool { return true }

func (h handler) WithAttrs(attrs []slog.Attr) slog.Handler {
	return handler{h.ctx, append(h.attrs[:len(h.attrs):len(h.attrs)], attrs...)}
}

func (h handler) WithGroup(string) slog.Handler { return h }

func (h handler) Handle(_ context.Context, r slog.Record) error {
	fields := make(map[string]any, len(h.attrs)+r.NumAttrs())
	for _, a := range h.attrs {
		flatten(fields, a)
	}
	r.Attrs(func(a slog.Attr) bool {
		flatten(fields, a)
		return true
	})
	switch {
	case r.Level >= slog.LevelError:
		tflog.Error(h.ctx, r.Message, fields)
	case r.Level >= slog.LevelWarn:
		tflog.Warn(h.ctx, r.Message, fields)
	case r.Level >= slog.LevelInfo:
		tflog.Info(h.ctx, r.Message, fields)
	default:
		tflog.Debug(h.ctx, r.Message, fields)
	}
	return nil
}

// flatten adds an attribute to fields. Of a group, it adds the attributes.
func flatten(fields map[string]any, a slog.Attr) {
	value := a.Value.Resolve()
	if value.Kind() != slog.KindGroup {
		fields[a.Key] = value.Any()
		return
	}
	for _, inner := range value.Group() {
		flatten(fields, inner)
	}
}
