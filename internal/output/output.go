package output

import (
	"cmp"
	"context"
	"io"
	"time"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/ledger"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/ledger/execs"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/ledger/micro"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/snapshots"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// Commands may write without end, and their output is kept as long as their sandbox's record. So it is bounded: if a
// lease, an environment or the whole ledger keeps too much, the oldest output is dropped. The ledger has the sums
// (ledger.KeptSum), so a check costs the same however long the history is.

// Store keeps output that is too large for the ledger; see snapshotstore.Store for the contract.
type Store interface {
	Put(ctx context.Context, object string, content io.Reader) error
	Open(ctx context.Context, object string, offset int64) (io.ReadCloser, error)
}

// Config configures a Service. All fields but Objects are required.
type Config struct {
	Ledger *ledger.Store
	// Objects keeps what the ledger does not. Without it, only the beginning of a stream is kept.
	Objects Store
	Bounds  Bounds
}

// Service is safe for concurrent use, by any number of processes on one ledger.
type Service struct{ Config }

// New returns a Service.
func New(c Config) *Service {
	c.Bounds = c.Bounds.withDefaults()
	return &Service{c}
}

// KeepsMore reports whether there is a store for output that is too large for the ledger.
func (v *Service) KeepsMore() bool { return v.Objects != nil }

// Bounds limit the kept output of commands and recordings of sessions, in bytes. Zero means the default.
type Bounds struct {
	Lease, Environment, Ledger int64
}

// The default bounds.
const (
	DefaultKeptLease       = 256 << 20
	DefaultKeptEnvironment = 2 << 30
	DefaultKeptLedger      = 8 << 30
	// MinKept is what one command may keep: two full streams.
	MinKept = 2 * sandbox.MaxKeptOutput
)

func (b Bounds) withDefaults() Bounds {
	b.Lease = cmp.Or(b.Lease, DefaultKeptLease)
	b.Environment = cmp.Or(b.Environment, DefaultKeptEnvironment)
	b.Ledger = cmp.Or(b.Ledger, DefaultKeptLedger)
	return b
}

func (b Bounds) of(scope ledger.KeptScope) int64 {
	switch scope {
	case ledger.KeptOfLease:
		return b.Lease
	case ledger.KeptOfEnvironment:
		return b.Environment
	default:
		return b.Ledger
	}
}

const (
	// dropBatch limits what one transaction drops. A command adds one record, so the dropping catches up.
	dropBatch = 32
	// dropPause lets other writers have their turn between two transactions.
	dropPause = 20 * time.Millisecond
)

// BoundGrown drops the oldest output if the transaction has made a lease, an environment or the ledger keep too much.
// Rows of commands and sessions that were read before may then be out of date.
func (v *Service) BoundGrown(tx *ledger.Tx) error {
	for _, s := range execs.In(tx).GrownSums() {
		if s.Bytes <= v.Bounds.of(s.Scope) {
			continue
		}
		if err := v.dropOutput(tx, s); err != nil {
			return err
		}
	}
	return nil
}

func (v *Service) dropOutput(tx *ledger.Tx, s ledger.KeptSum) error {
	return execs.In(tx).DropKept(s.Scope, s.ID, v.Bounds.of(s.Scope), dropBatch, Objects,
		tx.Now.Add(micro.SpanOf(sandbox.Duration(snapshots.KeepReplaced))))
}

// Bound drops the oldest output wherever too much is kept: after the bounds were lowered, or if one commit could not
// drop enough. Any number of processes may call it at any time.
func (v *Service) Bound(ctx context.Context) error {
	for {
		beyond, err := v.keptBeyond(ctx)
		if err != nil || beyond == nil {
			return err
		}
		if err := v.Ledger.Write(ctx, func(tx *ledger.Tx) error { return v.dropOutput(tx, *beyond) }); err != nil {
			return err
		}
		select {
		case <-time.After(dropPause):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// keptBeyond returns a lease, an environment or the ledger that keeps too much, nil if there is none.
func (v *Service) keptBeyond(ctx context.Context) (beyond *ledger.KeptSum, err error) {
	err = v.Ledger.Read(ctx, func(tx *ledger.Tx) (err error) {
		for _, scope := range []ledger.KeptScope{ledger.KeptOfLease, ledger.KeptOfEnvironment, ledger.KeptOfLedger} {
			if beyond, err = execs.In(tx).KeptBeyond(scope, v.Bounds.of(scope)); err != nil || beyond != nil {
				return err
			}
		}
		return nil
	})
	return beyond, err
}

// ErrDropped is the error of reading output that is no longer kept.
func ErrDropped(what string, at micro.Time) error {
	return sandbox.Errorf(sandbox.OutputExpired, "%s is no longer kept: it was dropped at %s to make room for newer "+
		"output; collect output as it comes, or have the operator keep more (--kept-output-lease, "+
		"--kept-output-environment, --kept-output)", what, at.Time().Format(time.RFC3339))
}
