package environments

import (
	"context"
	"errors"
	"fmt"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/ledger"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/lifecycle"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// errFinished: another request has taken over the environment, or its sandboxes are not gone yet.
var errFinished = errors.New("there is nothing to finish now")

// Finish removes from a backend what unfinished creations and removals have left there, because their process died or
// the backend failed. A failure does not stop the others. It does nothing while the backend is out of reach.
func (v *Service) Finish(ctx context.Context, b sandbox.Backend) error {
	x, err := v.Core.BackendFor(b)
	if err != nil {
		return err
	}
	instance := x.Connected()
	if instance == "" {
		return nil
	}
	var rows []ledger.Environment
	err = v.Store.Read(ctx, func(tx *ledger.Tx) (err error) {
		rows, err = tx.UnfinishedEnvironments(instance)
		return err
	})
	for i := range rows {
		if failed := v.finish(ctx, x, &rows[i]); failed != nil {
			err = errors.Join(err, fmt.Errorf("removing what is left of environment %s: %w", rows[i].ID, failed))
		}
	}
	return err
}

func (v *Service) finish(ctx context.Context, x *lifecycle.Backend, seen *ledger.Environment) error {
	claim, err := v.tryClaim(ctx, seen.ID, func(tx *ledger.Tx, row *ledger.Environment) error {
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
	return v.whileClaimed(ctx, seen.ID, claim, func(ctx context.Context) error {
		return v.deprovision(ctx, x, seen.ID, seen.Instance, claim)
	})
}
