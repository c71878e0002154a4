package leasing

import (
	"context"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/ledger"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// ListStates implements service.States.
func (e *Engine) ListStates(ctx context.Context, f sandbox.StateFilter) (states []sandbox.SavedState, err error) {
	err = e.store.Read(ctx, func(tx *ledger.Tx) error {
		rows, err := tx.Snapshots().SavedStates(f)
		states = make([]sandbox.SavedState, len(rows))
		for i := range rows {
			states[i] = rows[i].Domain()
		}
		return err
	})
	return states, err
}

// DeleteState implements service.States. The object is deleted once no reader can be left.
func (e *Engine) DeleteState(ctx context.Context, key string) error {
	return e.store.Write(ctx, func(tx *ledger.Tx) error {
		saved, err := tx.Snapshots().SavedState(key)
		if err != nil {
			return err
		}
		if saved == nil {
			return sandbox.Errorf(sandbox.NotFound, "no state is saved under %q on this ledger", key)
		}
		holder, err := tx.Snapshots().StateHolder(key)
		if err != nil {
			return err
		}
		if holder != nil && holder.ReadyAt != 0 {
			return sandbox.Errorf(sandbox.Conflict, "the state of %s is held by generation %d of lease %s, which would save it again: release that first", key, holder.Generation, holder.Lease()).WithReason(sandbox.ReasonActiveLeases)
		}
		return tx.Snapshots().RemoveSavedState(key, tx.Now.Add(ledger.SpanOf(retiredFor)))
	})
}
