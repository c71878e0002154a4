package leasing

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/ledger"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/ledger/micro"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/ledger/modelcalls"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/ledger/sealedsecrets"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/lifecycle"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// What an environment has on its backend is made, changed and removed by one request at a time, of whichever process:
// the one that has the environment's claim. Others wait. So no request removes what another one has made, and each
// finds the ledger and the backend as the one before has left them.
//
//	PUT      claim, store the settings ──> Provision ──> settle: made
//	                                          └ failed ─> never made: Deprovision, destroyed; or deleting if that fails
//	                                                      made before: the new settings stay
//	DELETE   deleting, end leases, wait ──> claim ──> Deprovision ──> settle: destroyed
//	loop     claim what is unclaimed and unmade or deleting ──> Deprovision ──> settle: destroyed
//
// An environment is unmade until its first Provision has succeeded: until then it gives out no lease, and so nothing
// depends on it. A step goes on when its caller leaves, because a backend may carry out late what is cut off. A
// creation with CreateOnly whose caller has left stays unmade: its next try finds the name free, and otherwise the
// loop removes it.

// errWorkedOn: another request works on the environment now.
var errWorkedOn = errors.New("another request works on it")

// errUnmade: the environment is being created.
var errUnmade = errors.New("it is being created")

// claimEnvironment reserves an environment, once no other request works on it, in the transaction in which begin
// changes it. row is nil where there is none; begin may create it.
func (e *Engine) claimEnvironment(ctx context.Context, id string,
	begin func(tx *ledger.Tx, row *ledger.Environment) error) (claim string, err error) {
	for {
		if _, err := e.awaitEnvironment(ctx, id); err != nil {
			return "", err
		}
		claim, err := e.tryEnvironment(ctx, id, begin)
		if !errors.Is(err, errWorkedOn) {
			return claim, err
		}
	}
}

// tryEnvironment is claimEnvironment without waiting. Errors: errWorkedOn.
func (e *Engine) tryEnvironment(ctx context.Context, id string,
	begin func(tx *ledger.Tx, row *ledger.Environment) error) (claim string, err error) {
	claim = e.ids(sandbox.LedgerIDLength)
	return claim, e.store.Write(ctx, func(tx *ledger.Tx) error {
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

// awaitEnvironment waits until no request works on an environment, and reports whether one did.
func (e *Engine) awaitEnvironment(ctx context.Context, id string) (waited bool, err error) {
	for {
		changed := e.store.Changed()
		var until micro.Time
		err := e.store.Read(ctx, func(tx *ledger.Tx) error {
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
		if err := e.Pause(ctx, changed, until); err != nil {
			return true, lifecycle.AsError(
				fmt.Errorf("environment %s: another request creates, changes or deletes it: %w", id, err))
		}
	}
}

// whileClaimed does something to an environment under a claim, which it extends meanwhile. do's context ends when the
// claim is lost or the engine closes.
func (e *Engine) whileClaimed(ctx context.Context, id, claim string, do func(ctx context.Context) error) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(e.Life(), cancel)()
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
			if !e.extendEnvironment(ctx, id, claim) {
				cancel()
			}
		}
	}()
	err := do(ctx)
	cancel()
	<-extending
	return err
}

// extendEnvironment extends a claim, and reports false once it is lost. While the ledger is away no other
// request gets it.
func (e *Engine) extendEnvironment(ctx context.Context, id, claim string) (held bool) {
	err := e.store.Write(ctx, func(tx *ledger.Tx) (err error) {
		held, err = tx.ExtendEnvironmentClaim(id, claim, tx.Now.Add(micro.SpanOf(lifecycle.ClaimTTL)))
		return err
	})
	if err != nil && ctx.Err() == nil {
		e.log.ErrorContext(ctx, "leasing: extending the claim on an environment", "environment", id, "error", err)
	}
	return err != nil || held
}

// settleEnvironment ends a claim in the transaction in which change records what was done under it. Where the claim
// is lost, nothing is changed and another request has the environment. A nil change only ends it.
func (e *Engine) settleEnvironment(ctx context.Context, id, claim string,
	change func(tx *ledger.Tx, row *ledger.Environment) error) error {
	return e.store.Write(context.WithoutCancel(ctx), func(tx *ledger.Tx) error {
		row, err := tx.KnownEnvironment(id)
		if err != nil {
			return err
		}
		if row.Claim.Token != claim {
			return sandbox.Errorf(sandbox.Unavailable,
				"environment %s: another request took over what this one did not finish in time: ask again", id)
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

// provision makes a claimed environment, past the end of ctx. It returns early, with ctx's error, when ctx ends.
// brokers: the environment's gateway has credentials, or had them.
func (e *Engine) provision(ctx context.Context, x *lifecycle.Backend, p sandbox.PutEnvironment, brokers bool,
	instance, claim string) error {
	done := make(chan error, 1)
	begun := e.Background(func() {
		detached := context.WithoutCancel(ctx)
		err := e.whileClaimed(detached, p.ID, claim, func(claimed context.Context) error {
			bounded, cancel := context.WithTimeout(claimed, provisionTimeout(x, p.ImagePull))
			defer cancel()
			err := x.Provision(bounded, e.EnvironmentRef(p.ID, instance), p.EnvironmentSpec)
			if err == nil && brokers {
				err = e.llm.Serve(bounded, x, p.ID, instance)
			}
			if err == nil {
				_, err = x.Attest(bounded, instance)
			}
			if err != nil {
				return e.abandon(claimed, x, p.ID, instance, claim, lifecycle.AsError(err))
			}
			return nil
		})
		if err == nil {
			err = e.settleEnvironment(detached, p.ID, claim, func(_ *ledger.Tx, row *ledger.Environment) error {
				if !p.CreateOnly || ctx.Err() == nil {
					row.UnmadeSince = 0
				}
				return nil
			})
		}
		if err != nil && ctx.Err() != nil {
			e.log.WarnContext(detached, "leasing: making an environment whose caller has left",
				"environment", p.ID, "error", err)
		}
		done <- err
	})
	if !begun {
		return errors.Join(lifecycle.ErrClosing, e.settleEnvironment(ctx, p.ID, claim, nil))
	}
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
		return sandbox.Errorf(sandbox.Timeout, "environment %s: its making goes on: %w", p.ID, ctx.Err())
	}
}

// abandon answers for a Provision that failed, and ends its claim. What was made of an environment that never was ready
// is removed again; where that fails too, or this engine closes, the loop or the next request goes on with it.
func (e *Engine) abandon(claimed context.Context, x *lifecycle.Backend, id, instance, claim string, cause error) error {
	ctx := context.WithoutCancel(claimed)
	var unmade bool
	err := e.store.Read(ctx, func(tx *ledger.Tx) error {
		row, err := tx.KnownEnvironment(id)
		unmade = err == nil && row.UnmadeSince != 0
		return err
	})
	if err == nil && (!unmade || claimed.Err() != nil) {
		err = e.settleEnvironment(ctx, id, claim, nil)
	} else if err == nil {
		err = e.deprovision(claimed, x, id, instance, claim)
		if err != nil {
			return lifecycle.AsError(fmt.Errorf("%w; what was made of environment %s could not be removed either (%w): a "+
				"running reconciler tries that again, and so does deleting it", cause, id, err))
		}
	}
	if err != nil {
		e.log.ErrorContext(ctx, "leasing: taking back an environment that could not be made", "environment", id, "error", err)
	}
	return cause
}

// deprovision removes what a claimed environment has on its backend, and ends the claim. What cannot be removed leaves
// it as one that is being deleted.
func (e *Engine) deprovision(ctx context.Context, x *lifecycle.Backend, id, instance, claim string) error {
	bounded, cancel := context.WithTimeout(ctx, lifecycle.KillTimeout)
	defer cancel()
	failed := e.drainLLM(bounded, x, id)
	if failed == nil {
		failed = x.Deprovision(bounded, e.EnvironmentRef(id, instance))
	}
	if failed == nil {
		failed = e.deprovisionAdopted(bounded, x, id, instance)
	}
	if failed == nil {
		failed = e.Withdraw(bounded, x, instance, id)
	}
	err := e.settleEnvironment(ctx, id, claim, func(tx *ledger.Tx, row *ledger.Environment) error {
		if row.Status = sandbox.EnvironmentDeleting; failed != nil {
			return sealedsecrets.In(tx).DeleteAll(id)
		}
		row.Status, row.UnmadeSince = sandbox.EnvironmentDestroyed, 0
		return errors.Join(sealedsecrets.In(tx).DeleteAll(id), modelcalls.In(tx).ForgetCursors(id),
			tx.AppendEnvironmentEvent(id, sandbox.EventEnvironmentDestroyed, nil))
	})
	return lifecycle.AsError(errors.Join(failed, err))
}

// drainLLM records the calls of models that the ledger does not have yet, before their journal is removed.
func (e *Engine) drainLLM(ctx context.Context, x *lifecycle.Backend, id string) error {
	var env *ledger.Environment
	err := e.store.Read(ctx, func(tx *ledger.Tx) (err error) {
		env, err = tx.KnownEnvironment(id)
		return err
	})
	if err != nil {
		return err
	}
	return e.llm.Drain(ctx, x, env)
}

// FinishEnvironments removes what creations and removals have left on a backend that did not come to their end, because
// their process died or the backend failed. Each is its own: one that cannot be removed keeps no other. A backend out
// of reach is left alone.
func (e *Engine) FinishEnvironments(ctx context.Context, b sandbox.Backend) error {
	x, err := e.BackendFor(b)
	if err != nil {
		return err
	}
	instance := x.Connected()
	if instance == "" {
		return nil
	}
	var rows []ledger.Environment
	err = e.store.Read(ctx, func(tx *ledger.Tx) (err error) {
		rows, err = tx.UnfinishedEnvironments(instance)
		return err
	})
	for i := range rows {
		if failed := e.finishEnvironment(ctx, x, &rows[i]); failed != nil {
			err = errors.Join(err, fmt.Errorf("removing what is left of environment %s: %w", rows[i].ID, failed))
		}
	}
	return err
}

// errFinished: another request has gone on with the environment, or its sandboxes have yet to go.
var errFinished = errors.New("nothing is to be finished")

func (e *Engine) finishEnvironment(ctx context.Context, x *lifecycle.Backend, seen *ledger.Environment) error {
	claim, err := e.tryEnvironment(ctx, seen.ID, func(tx *ledger.Tx, row *ledger.Environment) error {
		if row == nil || row.Status != seen.Status || row.UnmadeSince != seen.UnmadeSince || row.Instance != seen.Instance {
			return errFinished
		}
		left, err := tx.LiveSandboxes(row.ID)
		if err == nil && len(left) > 0 {
			err = errFinished
		}
		return err
	})
	if errors.Is(err, errFinished) || errors.Is(err, errWorkedOn) {
		return nil
	}
	if err != nil {
		return err
	}
	return e.whileClaimed(ctx, seen.ID, claim, func(ctx context.Context) error {
		return e.deprovision(ctx, x, seen.ID, seen.Instance, claim)
	})
}
