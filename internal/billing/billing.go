// Package billing computes the cost of usage. It sums usage periods by day, month and sandbox, reports costs,
// enforces budgets, and compares the ledger's usage with the backends' own meters. It only reads what the
// lifecycle recorded.
package billing

import (
	"log/slog"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/ledger"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// Service is safe for concurrent use, by any number of processes on one ledger.
type Service struct {
	store *ledger.Store
	books map[sandbox.Backend]sandbox.PriceBook
	log   *slog.Logger
}

// New returns a Service. The books apply to usage that begins from now on.
func New(store *ledger.Store, books map[sandbox.Backend]sandbox.PriceBook, log *slog.Logger) *Service {
	return &Service{store, books, log}
}
