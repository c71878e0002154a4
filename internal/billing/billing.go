// Package billing says what usage costs: it sums usage periods by day, month and sandbox, reports costs, keeps budgets, and
// compares the ledger's usage with what backends have counted themselves. It reads what the lifecycle of sandboxes has
// recorded and changes nothing in it.
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

// New returns a Service. The books are in force for usage that begins from now on.
func New(store *ledger.Store, books map[sandbox.Backend]sandbox.PriceBook, log *slog.Logger) *Service {
	return &Service{store, books, log}
}
