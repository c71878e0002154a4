package environments

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/ledger"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/ledger/micro"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/lifecycle"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// errWorkedOn: another request works on the environment now.
var errWorkedOn = errors.New("another request works on it")

// claim reserves an environment once no other request works on it. begin changes the environment in the same
// transaction. row is nil if there is no environment; begin may create it.
func (v *Service) claim(ctx context.Context, id string,
	begin func(tx *ledger.Tx, row *ledger.Environment) error) (claim string, err error) {
	for {
		if _, err := v.Await(ctx, id); err != nil {
			return "", err
		}
		claim, err := v.tryClaim(ctx, id, begin)
		if !errors.Is(err, errWorkedOn) {
			return claim, err
		}
	}
}

// tryClaim is claim without waiting. Errors: errWorkedOn.
func (v *Service) tryClaim(ctx context.Context, id string,
	begin func(tx *ledger.Tx, row *ledger.Environment) error) (claim string, err error) {
	claim = v.IDs(sandbox.LedgerIDLength)
	return claim, v.Store.Write(ctx, func(tx *ledger.Tx) error {
		row, err := tx.Environment(id)
		if err != nil {
			return err
		}
		if row != nil && row.Claim.Holds(tx.Now) {
			return errWorkedOn
		}
		if err := begin(tx, row); err != nil {
			return err
		}
		return tx.ClaimEnvironment(id, claim, tx.Now.Add(micro.SpanOf(lifecycle.ClaimTTL)))
	})
}

// Await waits until no request works on an environment, and reports whether one did. Errors: Timeout, Unavailable.
func (v *Service) Await(ctx context.Context, id string) (waited bool, err error) {
	for {
		changed := v.Store.Changed()
		var until micro.Time
		err := v.Store.Read(ctx, func(tx *ledger.Tx) error {
			until = 0
			row, err := tx.Environment(id)
			if err == nil && row != nil && row.Claim.Holds(tx.Now) {
				until = row.Claim.Until
			}
			return err
		})
		if err != nil || until == 0 {
			return waited, err
		}
		waited = true
		if err := v.Core.Pause(ctx, changed, until); err != nil {
			return true, lifecycle.AsError(
				fmt.Errorf("environment %s: another request creates, changes or deletes it: %w", id, err))
		}
	}
}

// whileClaimed calls do with an environment under a claim, which it extends meanwhile. do's context ends when the claim
// is lost or this process closes.
func (v *Service) whileClaimed(ctx context.Context, id, claim string, do func(ctx context.Context) error) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(v.Core.Life(), cancel)()
	extending := make(chan struct{})
	go func() {
		defer close(extending)
		tick := time.NewTicker(lifecycle.HeartbeatEvery)
		defer tick.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
			}
			if !v.extend(ctx, id, claim) {
				cancel()
			}
		}
	}()
	err := do(ctx)
	cancel()
	<-extending
	return err
}

// extend extends a claim, and returns false once it is lost. While the ledger is away, no other request can take it.
func (v *Service) extend(ctx context.Context, id, claim string) (held bool) {
	err := v.Store.Write(ctx, func(tx *ledger.Tx) (err error) {
		held, err = tx.ExtendEnvironmentClaim(id, claim, tx.Now.Add(micro.SpanOf(lifecycle.ClaimTTL)))
		return err
	})
	if err != nil && ctx.Err() == nil {
		v.Log.ErrorContext(ctx, "environments: extending the claim on an environment", "environment", id, "error", err)
	}
	return err != nil || held
}

// settle ends a claim. In the same transaction, change records the work that was done under it. If the claim is lost,
// nothing is changed, because another request has the environment. A nil change only ends the claim.
func (v *Service) settle(ctx context.Context, id, claim string,
	change func(tx *ledger.Tx, row *ledger.Environment) error) error {
	return v.Store.Write(context.WithoutCancel(ctx), func(tx *ledger.Tx) error {
		row, err := tx.KnownEnvironment(id)
		if err != nil {
			return err
		}
		if row.Claim.Token != claim {
			return sandbox.Errorf(sandbox.Unavailable,
				"environment %s: this request took too long, and another one took over its work: retry", id)
		}
		return tx.UpdateEnvironmentRow(row, func(row *ledger.Environment) error {
			row.Claim = ledger.EnvironmentClaim{}
			if change == nil {
				return nil
			}
			return change(tx, row)
		})
	})
}
