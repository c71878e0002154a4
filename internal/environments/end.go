package environments

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/ledger"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/lifecycle"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// ReopenEnvironment implements service.Environments.
func (v *Service) ReopenEnvironment(ctx context.Context, id string) (sandbox.Environment, error) {
	err := v.Store.Write(ctx, func(tx *ledger.Tx) error {
		row, err := tx.KnownEnvironment(id)
		if err != nil {
			return err
		}
		if row.Status != sandbox.EnvironmentOpen && row.Status != sandbox.EnvironmentClosed {
			return sandbox.Errorf(sandbox.Conflict, "environment %s is %s and cannot be reopened", id, row.Status)
		}
		return tx.UpdateEnvironmentRow(row, func(row *ledger.Environment) error { return reopen(tx, row) })
	})
	if err != nil {
		return sandbox.Environment{}, err
	}
	return v.GetEnvironment(ctx, id)
}

func reopen(tx *ledger.Tx, row *ledger.Environment) error {
	if row.Status != sandbox.EnvironmentClosed {
		return nil
	}
	row.Status, row.OpenedAt = sandbox.EnvironmentOpen, tx.Now
	row.Ended = ledger.EnvironmentEnd{Conditions: []string{}}
	return tx.AppendEnvironmentEvent(row.ID, sandbox.EventEnvironmentReopened, nil)
}

// DeleteEnvironment implements service.Environments.
func (v *Service) DeleteEnvironment(ctx context.Context, d sandbox.DeleteEnvironment) error {
	var (
		row  *ledger.Environment
		left []ledger.Sandbox
	)
	err := v.Store.Write(ctx, func(tx *ledger.Tx) (err error) {
		row, left, err = v.beginDelete(tx, d)
		return err
	})
	if err != nil || row.Status == sandbox.EnvironmentDestroyed {
		return err
	}
	for _, s := range left {
		if err := v.Core.AwaitGone(ctx, s.ID); err != nil {
			return err
		}
	}
	x, err := v.Core.BackendFor(row.Backend)
	if err != nil {
		return err
	}
	claim, err := v.claim(ctx, d.ID, func(_ *ledger.Tx, row *ledger.Environment) error {
		if row == nil || row.Status != sandbox.EnvironmentDeleting {
			return errFinished
		}
		return nil
	})
	if errors.Is(err, errFinished) {
		return nil
	}
	if err != nil {
		return err
	}
	return v.pastCaller(ctx, d.ID, claim, "removal", func(detached context.Context) error {
		return v.whileClaimed(detached, d.ID, claim, func(claimed context.Context) error {
			return v.deprovision(claimed, x, row.ID, row.Instance, claim)
		})
	})
}

// beginDelete closes an environment permanently and ends its leases. It returns the sandboxes that must still go.
func (v *Service) beginDelete(tx *ledger.Tx,
	d sandbox.DeleteEnvironment) (*ledger.Environment, []ledger.Sandbox, error) {
	row, err := tx.KnownEnvironment(d.ID)
	if err != nil || row.Status == sandbox.EnvironmentDestroyed {
		return row, nil, err
	}
	if d.Owner != "" && d.Owner != row.Owner {
		return nil, nil, sandbox.Errorf(sandbox.Conflict, "delete environment %s: it belongs to %s, not to %s",
			d.ID, row.Owner, d.Owner).WithReason(sandbox.ReasonOtherOwner)
	}
	rows, err := tx.LiveSandboxes(d.ID)
	if err != nil {
		return nil, nil, err
	}
	var active []string
	for i := range rows {
		held, err := tx.Holds().Until(rows[i].ID)
		if err != nil {
			return nil, nil, err
		}
		if !rows[i].Pooled() && rows[i].Live(held, tx.Now) {
			active = append(active, rows[i].Lease()+" of "+rows[i].Owner)
		}
	}
	if len(active) > 0 && !d.Force {
		slices.Sort(active)
		count, next := "an active lease", "end it"
		if len(active) > 1 {
			count, next = fmt.Sprintf("%d active leases", len(active)), "end them"
		}
		return nil, nil, sandbox.Errorf(sandbox.Conflict, "environment %s has %s: %s: %s first, or delete the environment "+
			"with force", d.ID, count, strings.Join(active, ", "), next).WithReason(sandbox.ReasonActiveLeases)
	}
	err = tx.UpdateRows(rows, func(s *ledger.Sandbox) error {
		if err := v.Core.End(tx, s,
			lifecycle.Ending{By: sandbox.EndedByEnvironment, Reason: "its environment was destroyed", At: tx.Now}); err != nil {
			return err
		}
		s.Schedule.DueAt = tx.Now // a destroy that waits for a retry is tried now
		return lifecycle.EndRetention(tx, s, string(sandbox.EndedByEnvironment))
	})
	if err != nil {
		return nil, nil, err
	}
	return row, rows, tx.UpdateEnvironmentRow(row, func(row *ledger.Environment) error {
		row.Status = sandbox.EnvironmentDeleting
		return nil
	})
}
