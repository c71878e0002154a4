package leasing

import (
	"context"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/ledger"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/ledger/deliveries"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/ledger/drift"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/lifecycle"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// ListEvents implements service.Reports.
func (e *Engine) ListEvents(ctx context.Context, f sandbox.EventFilter) (events []sandbox.Event, err error) {
	if err := f.CheckLimit(); err != nil {
		return nil, err
	}
	err = e.store.Read(ctx, func(tx *ledger.Tx) error {
		events, err = tx.Events(f)
		return err
	})
	return events, err
}

// FollowEvents implements service.Reports. It holds one page of events, and none without a reader.
func (e *Engine) FollowEvents(ctx context.Context, f sandbox.EventFilter, yield func(sandbox.Event) error) error {
	if f.Latest {
		return sandbox.InvalidFields("event filter",
			[]sandbox.Field{{Name: "latest", Problem: "cannot be followed: events come in the order in which they happen"}})
	}
	f.Limit = 0
	for {
		changed := e.store.Changed()
		events, last, err := e.nextEvents(ctx, f)
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if err != nil {
			return err
		}
		for _, ev := range events {
			if err := yield(ev); err != nil {
				return err
			}
			f.AfterID = ev.ID
			if f.SandboxID != "" {
				f.FromSequence = ev.Sequence
			}
		}
		if len(events) == sandbox.MaxPage {
			continue
		}
		f.AfterID = last // what the filter leaves out was passed too
		select {
		case <-changed:
		case <-ctx.Done():
			return ctx.Err()
		case <-e.Life().Done():
			return lifecycle.ErrClosing
		}
	}
}

// nextEvents returns a page of events and the latest one's id, both as of one moment.
func (e *Engine) nextEvents(ctx context.Context,
	f sandbox.EventFilter) (events []sandbox.Event, last int64, err error) {
	err = e.store.Read(ctx, func(tx *ledger.Tx) error {
		if events, err = tx.Events(f); err != nil {
			return err
		}
		feed, err := tx.Feed()
		last = feed.Last
		return err
	})
	return events, last, err
}

// ListDrift implements service.Reports.
func (e *Engine) ListDrift(ctx context.Context, f sandbox.DriftFilter) (findings []sandbox.DriftFinding, err error) {
	if err := f.Validate(); err != nil {
		return nil, err
	}
	err = e.store.Read(ctx, func(tx *ledger.Tx) error {
		findings, err = drift.In(tx).List(f)
		return err
	})
	return findings, err
}

// ListDeliveries implements service.Reports.
func (e *Engine) ListDeliveries(ctx context.Context,
	f sandbox.DeliveryFilter) (list []sandbox.StoredDelivery, err error) {
	if err := f.Validate(); err != nil {
		return nil, err
	}
	err = e.store.Read(ctx, func(tx *ledger.Tx) error {
		rows, err := deliveries.In(tx).List(f)
		for i := range rows {
			list = append(list, rows[i].Domain())
		}
		return err
	})
	return list, err
}
