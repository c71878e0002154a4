package lifecycle

import (
	"log/slog"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/ledger"
)

// About is the log attribute that names a sandbox, its lease and its environment.
func About(s *ledger.Sandbox) slog.Attr {
	attrs := []any{slog.String("environment", s.EnvironmentID), slog.String("sandbox", s.ID)}
	if lease := s.Lease(); lease != "" { // "" while it waits in a pool
		attrs = append(attrs, slog.String("lease", lease))
	}
	return slog.Group("", attrs...)
}
