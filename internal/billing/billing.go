// Package billing computes the cost of usage. It sums usage periods by day, month and sandbox, reports costs,
// compares the ledger's usage with the backends' own meters, and enforces budgets: it refuses leases that a budget does
// not cover, and ends those of a budget that is spent.
package billing

import (
	"context"
	"log/slog"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/ledger"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/lifecycle"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// Config configures a Service. All fields are required.
type Config struct {
	Store *ledger.Store
	// Books apply to usage that begins from now on.
	Books map[sandbox.Backend]sandbox.PriceBook
	// End ends a lease, inside a transaction.
	End func(tx *ledger.Tx, s *ledger.Sandbox, end lifecycle.Ending) error
	// Measure reads what awake sandboxes have used, and records it.
	Measure func(ctx context.Context, rows []ledger.Sandbox) error
	Log     *slog.Logger
}

// Service is safe for concurrent use, by any number of processes on one ledger.
type Service struct {
	store *ledger.Store
	books map[sandbox.Backend]sandbox.PriceBook
	log   *slog.Logger

	end     func(tx *ledger.Tx, s *ledger.Sandbox, end lifecycle.Ending) error
	measure func(ctx context.Context, rows []ledger.Sandbox) error
}

// New returns a Service.
func New(c Config) *Service {
	return &Service{store: c.Store, books: c.Books, log: c.Log, end: c.End, measure: c.Measure}
}
