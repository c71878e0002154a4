package leasing

import (
	"log/slog"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/ledger"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// about says in a line of the log which sandbox it is about, and of which lease and environment.
func about(s *ledger.Sandbox) slog.Attr {
	attrs := []any{slog.String("environment", s.EnvironmentID), slog.String("sandbox", s.ID)}
	if lease := s.Lease(); lease != "" { // else it waits in a pool
		attrs = append(attrs, slog.String("lease", lease))
	}
	return slog.Group("", attrs...)
}

// aboutLease does so by a lease's id; sandboxID may be "" where it is not known.
func aboutLease(id, sandboxID string) slog.Attr {
	attrs := []any{slog.String("lease", id)}
	if _, environment, err := sandbox.ParseLeaseID(id); err == nil {
		attrs = append(attrs, slog.String("environment", environment))
	}
	if sandboxID != "" {
		attrs = append(attrs, slog.String("sandbox", sandboxID))
	}
	return slog.Group("", attrs...)
}
