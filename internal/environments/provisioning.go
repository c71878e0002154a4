package environments

import (
	"context"
	"errors"
	"fmt"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/driver"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/ledger"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/ledger/modelcalls"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/ledger/sealedsecrets"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/ledger/witnesses"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/lifecycle"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// pastCaller finishes work on a claimed environment even after ctx ends, because a backend may still carry out
// an interrupted request. It returns early, with ctx's error, when ctx ends. what names the work.
func (v *Service) pastCaller(ctx context.Context, id, claim, what string, work func(context.Context) error) error {
	done := make(chan error, 1)
	begun := v.Core.Background(func() {
		detached := context.WithoutCancel(ctx)
		err := work(detached)
		if err != nil && ctx.Err() != nil {
			v.Log.WarnContext(detached, "environments: "+what+" of an environment failed after its caller left",
				"environment", id, "error", err)
		}
		done <- err
	})
	if !begun {
		return errors.Join(lifecycle.ErrClosing, v.settle(ctx, id, claim, nil))
	}
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
		return sandbox.Errorf(sandbox.Timeout, "environment %s: its %s continues: %w", id, what, ctx.Err())
	}
}

// provision makes a claimed environment. brokers: the environment's gateway has or had credentials. Errors: also those
// of pastCaller.
func (v *Service) provision(ctx context.Context, x *lifecycle.Backend, p sandbox.PutEnvironment, brokers bool,
	instance, claim string) error {
	return v.pastCaller(ctx, p.ID, claim, "creation", func(detached context.Context) error {
		var attested int64
		err := v.whileClaimed(detached, p.ID, claim, func(claimed context.Context) error {
			bounded, cancel := context.WithTimeout(claimed, ProvisionTimeout(x, p.ImagePull))
			defer cancel()
			err := x.Provision(bounded, v.Core.EnvironmentRef(p.ID, instance), p.EnvironmentSpec)
			if err == nil && brokers {
				err = v.LLM.Serve(bounded, x, p.ID, instance)
			}
			if err == nil {
				attested, err = x.Attest(bounded, instance)
			}
			if err != nil {
				return v.abandon(claimed, x, p.ID, instance, claim, lifecycle.AsError(err))
			}
			return nil
		})
		if err != nil {
			return err
		}
		return v.settle(detached, p.ID, claim, func(tx *ledger.Tx, row *ledger.Environment) error {
			if !p.CreateOnly || ctx.Err() == nil {
				row.UnmadeSince = 0
			}
			return witnesses.In(tx).Witnessed(instance, attested)
		})
	})
}

// abandon ends the claim of a failed Provision, and returns the error. It removes an environment that was never ready.
// If that fails too, or this process closes, the loop or the next request continues.
func (v *Service) abandon(claimed context.Context, x *lifecycle.Backend, id, instance, claim string,
	cause error) error {
	ctx := context.WithoutCancel(claimed)
	var unmade bool
	err := v.Store.Read(ctx, func(tx *ledger.Tx) error {
		row, err := tx.KnownEnvironment(id)
		unmade = err == nil && row.UnmadeSince != 0
		return err
	})
	if err == nil && (!unmade || claimed.Err() != nil) {
		err = v.settle(ctx, id, claim, nil)
	} else if err == nil {
		err = v.deprovision(claimed, x, id, instance, claim)
		if err != nil {
			return left(id, cause, err)
		}
	}
	if err != nil {
		v.Log.ErrorContext(ctx, "environments: rolling back a failed creation",
			"environment", id, "error", err)
	}
	return cause
}

// left returns the error for a failed creation that could not be rolled back. It is not retryable, because another
// creation cannot succeed before the rollback.
func left(id string, cause, removing error) error {
	if sandbox.IsRetryable(cause) {
		cause = sandbox.Errorf(sandbox.Failed, "%w", cause).WithReason(sandbox.ReasonOf(cause))
	}
	return lifecycle.AsError(fmt.Errorf("%w; what was made of environment %s could not be removed either (%w): a "+
		"running reconciler tries that again, and so does deleting it", cause, id, removing))
}

// deprovision removes a claimed environment's resources from its backend, and ends the claim. If the removal fails, the
// environment's status stays deleting.
func (v *Service) deprovision(ctx context.Context, x *lifecycle.Backend, id, instance, claim string) error {
	bounded, cancel := context.WithTimeout(ctx, lifecycle.KillTimeout)
	defer cancel()
	// Record the remaining model calls before the removal of their journal.
	failed := v.LLM.Drain(bounded, x, id, instance)
	if failed == nil {
		failed = x.Deprovision(bounded, v.Core.EnvironmentRef(id, instance))
	}
	if failed == nil {
		failed = v.deprovisionAdopted(bounded, x, id, instance)
	}
	if failed == nil {
		failed = x.Withdraw(bounded, instance, id)
	}
	err := v.settle(ctx, id, claim, func(tx *ledger.Tx, row *ledger.Environment) error {
		if row.Status = sandbox.EnvironmentDeleting; failed != nil {
			return sealedsecrets.In(tx).DeleteAll(id)
		}
		row.Status, row.UnmadeSince = sandbox.EnvironmentDestroyed, 0
		return errors.Join(sealedsecrets.In(tx).DeleteAll(id), modelcalls.In(tx).ForgetCursors(id),
			tx.AppendEnvironmentEvent(id, sandbox.EventEnvironmentDestroyed, nil))
	})
	return lifecycle.AsError(errors.Join(failed, err))
}

// deprovisionAdopted removes what an environment's adopted sandboxes shared under the labels of their former ledgers.
// If a former ledger still has sandboxes that were not adopted, the shared resources stay.
func (v *Service) deprovisionAdopted(ctx context.Context, x *lifecycle.Backend, id, instance string) error {
	var labels []string
	err := v.Store.Read(ctx, func(tx *ledger.Tx) (err error) {
		labels, err = tx.AdoptedFrom(id)
		return err
	})
	if err != nil {
		return err
	}
	for _, label := range labels {
		err := x.Deprovision(ctx, driver.EnvironmentRef{LedgerID: label, EnvironmentID: id, Instance: instance})
		if sandbox.CodeOf(err) == sandbox.Conflict {
			v.Log.WarnContext(ctx, "environments: sandboxes of the environment were not adopted; what they share stays",
				"environment", id, "ledger", label, "error", err)
			continue
		}
		if err == nil {
			err = x.WithdrawLost(ctx, label, instance)
		}
		if err != nil {
			return err
		}
	}
	return nil
}
