package leasing_test

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/ledger/ledgertest"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/lifecycle"
	"github.com/sandbox-lease/terraform-provider-sandbox/reconciler/loop"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// TestStepsThatTheLedgerRefusesAreTriedInTheirTime makes a ledger refuse to store the ends of three leases. The loop
// retries each of them at the pace of retries, and another sandbox does not wait for them. Once the ledger stores the
// ends, they succeed within one such pause.
func TestStepsThatTheLedgerRefusesAreTriedInTheirTime(t *testing.T) {
	inWorld(t, func(w *world) {
		w.environment()
		var refused []string
		for i := range 3 {
			refused = append(refused, w.acquire(fmt.Sprintf("did:plc:refused%d", i)).ID)
		}
		later(time.Second) // they are due first
		w.acquire(ann)
		later(48 * time.Hour)
		ledgertest.ExecSQL(w.T, w.path, "CREATE TRIGGER refuse BEFORE UPDATE ON sandboxes "+
			"WHEN NEW.agent_did LIKE 'did:plc:refused%' BEGIN SELECT RAISE(ABORT, 'no'); END")
		ctx, cancel := context.WithCancel(w.Context())
		defer cancel()
		failures := &failures{give: 1000, up: cancel}
		done := make(chan struct{})
		go func() {
			defer close(done)
			_ = loop.New(w.engine, loop.Config{Workers: 1, Poll: time.Minute, Logger: slog.New(failures)}).Run(ctx)
		}()
		defer func() { cancel(); <-done }()
		later(lifecycle.FirstRetry / 2)
		w.want(w.lease(annLease), sandbox.LeaseDestroyed, sandbox.EndedByTTL)
		later(10 * time.Second)
		if n := failures.count(); n < 3*15 || n > 3*25 {
			w.Errorf("%d steps failed in 10 s, want 3 every %s", n, lifecycle.FirstRetry)
		}
		ledgertest.ExecSQL(w.T, w.path, "DROP TRIGGER refuse")
		later(lifecycle.FirstRetry + time.Second/10)
		for _, id := range refused {
			w.want(w.lease(id), sandbox.LeaseDestroyed, sandbox.EndedByTTL)
		}
	})
}

// failures is a log that counts failed steps. It stops the test at a number of them.
type failures struct {
	give int
	up   func()

	mu sync.Mutex // guards n
	n  int
}

func (f *failures) count() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.n
}

func (f *failures) Enabled(context.Context, slog.Level) bool { return true }
func (f *failures) WithAttrs([]slog.Attr) slog.Handler       { return f }
func (f *failures) WithGroup(string) slog.Handler            { return f }

func (f *failures) Handle(_ context.Context, r slog.Record) error {
	if !strings.Contains(r.Message, "step failed") {
		return nil
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.n++; f.n == f.give {
		f.up()
	}
	return nil
}
