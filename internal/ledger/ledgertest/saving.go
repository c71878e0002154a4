package ledgertest

import (
	"errors"
	"maps"
	"testing"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/ledger"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// saving changes one row in several ways in one transaction.
func (s suite) saving(t *testing.T) {
	t.Parallel()
	store := open(t, s.fresh(t), nil)
	var id string
	write(t, store, func(tx *ledger.Tx) error {
		row := Sandbox(tx, "game", 1)
		row.Phase, id = sandbox.PhaseAwake, row.ID
		return errors.Join(Environment(tx, "game"), tx.CreateSandbox(row))
	})
	env := map[string]string{"A": "1", "B": ""}
	write(t, store, func(tx *ledger.Tx) error {
		row, err := tx.Sandbox(id)
		if err != nil {
			return err
		}
		if err := tx.Observed([]string{id}); err != nil { // the row in memory does not have this change
			return err
		}
		err = tx.UpdateRow(row, func(row *ledger.Sandbox) error {
			row.Schedule.Attempts, row.Schedule.LastError, row.Env = 3, "it failed", env
			return nil
		})
		if err != nil {
			return err
		}
		refused, err := tx.Part(func(tx *ledger.Tx) error {
			err := tx.UpdateRow(row, func(row *ledger.Sandbox) error {
				row.Schedule.Attempts = 4
				return nil
			})
			return errors.Join(err, errors.New("no"))
		})
		if err != nil || refused == nil {
			t.Errorf("the part failed with %v, %v", refused, err)
		}
		return tx.UpdateRow(row, func(row *ledger.Sandbox) error {
			row.Schedule.LastError = ""
			return nil // the row is stored as in memory: the part's rollback did not change it
		})
	})
	read(t, store, func(tx *ledger.Tx) error {
		row, err := tx.Sandbox(id)
		if err != nil {
			return err
		}
		if row.Schedule.Attempts != 4 || row.Schedule.LastError != "" || !maps.Equal(row.Env, env) {
			t.Errorf("the row has %d attempts, the error %q and the variables %v",
				row.Schedule.Attempts, row.Schedule.LastError, row.Env)
		}
		return nil
	})
	write(t, store, func(tx *ledger.Tx) error {
		return tx.Update(id, func(row *ledger.Sandbox) error {
			row.Schedule.Attempts = 5
			return tx.Observed([]string{id})
		})
	})
	read(t, store, func(tx *ledger.Tx) error {
		row, err := tx.Sandbox(id)
		if err == nil && (row.ObservedAt == 0 || row.Schedule.Attempts != 5) {
			t.Errorf("a save of another column overwrote the observation: %d, %d attempts",
				row.ObservedAt, row.Schedule.Attempts)
		}
		return err
	})
}

// updating checks that a sandbox changes only within an update.
func (s suite) updating(t *testing.T) {
	t.Parallel()
	store := open(t, s.fresh(t), nil)
	var id string
	write(t, store, func(tx *ledger.Tx) error {
		row := Sandbox(tx, "game", 1)
		id = row.ID
		return errors.Join(Environment(tx, "game"), tx.CreateSandbox(row))
	})
	for name, c := range map[string]struct {
		change func(tx *ledger.Tx) error
		want   sandbox.Code
	}{
		"an unknown sandbox": {func(tx *ledger.Tx) error {
			return tx.Update("nowhere", func(*ledger.Sandbox) error { return nil })
		}, sandbox.NotFound},
		"an unknown environment": {func(tx *ledger.Tx) error {
			return tx.UpdateEnvironment("nowhere", func(*ledger.Environment) error { return nil })
		}, sandbox.NotFound},
		"an update within an update": {func(tx *ledger.Tx) error {
			return tx.Update(id, func(*ledger.Sandbox) error {
				return tx.Update(id, func(*ledger.Sandbox) error { return nil })
			})
		}, sandbox.Internal},
		"an event without an update": {func(tx *ledger.Tx) error {
			row, err := tx.Sandbox(id)
			return errors.Join(err, tx.AppendSandboxEvent(row, sandbox.EventRenewed, nil))
		}, sandbox.Internal},
		"an update that fails": {func(tx *ledger.Tx) error {
			return tx.Update(id, func(row *ledger.Sandbox) error {
				row.Owner = "another"
				return sandbox.Errorf(sandbox.Conflict, "no")
			})
		}, sandbox.Conflict},
	} {
		if err := store.Write(t.Context(), c.change); sandbox.CodeOf(err) != c.want {
			t.Errorf("%s: %v, want %s", name, err, c.want)
		}
	}
	write(t, store, func(tx *ledger.Tx) error { // in sequence, and two rows in nested updates
		other := Sandbox(tx, "game", 2)
		err := tx.CreateSandbox(other)
		for range 2 {
			err = errors.Join(err, tx.Update(id, func(row *ledger.Sandbox) error {
				row.Schedule.Attempts++
				return tx.Update(other.ID, func(other *ledger.Sandbox) error {
					other.Schedule.Attempts++
					return nil
				})
			}))
		}
		return err
	})
	read(t, store, func(tx *ledger.Tx) error {
		rows, err := tx.LiveSandboxes("game")
		for _, row := range rows {
			if row.Schedule.Attempts != 2 || row.Owner != "test" {
				t.Errorf("sandbox %s of %s was updated %d times, want 2", row.ID, row.Owner, row.Schedule.Attempts)
			}
		}
		return err
	})
}
