package lifecycle

import (
	"log/slog"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/ledger"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// About is the log attribute that names a sandbox, its lease and its environment.
func About(s *ledger.Sandbox) slog.Attr {
	attrs := []any{slog.String("environment", s.EnvironmentID), slog.String("sandbox", s.ID)}
	if lease := s.Lease(); lease != "" { // "" while it waits in a pool
		attrs = append(attrs, slog.String("lease", lease))
	}
	return slog.Group("", attrs...)
}

// AboutLease is About for a lease's id. sandboxID may be "" if it is not known.
func AboutLease(id, sandboxID string) slog.Attr {
	attrs := []any{slog.String("lease", id)}
	if _, environment, err := sandbox.ParseLeaseID(id); err == nil {
		attrs = append(attrs, slog.String("environment", environment))
	}
	if sandboxID != "" {
		attrs = append(attrs, slog.String("sandbox", sandboxID))
	}
	return slog.Group("", attrs...)
}
