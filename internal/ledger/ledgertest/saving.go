package ledgertest

import (
	"errors"
	"maps"
	"testing"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/ledger"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/sandbox"
)

// saving changes one row by several ways in one transaction.
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
		if err := tx.Observed([]string{id}); err != nil { // which the row that was read does not know
			return err
		}
		row.Attempts, row.LastError, row.Env = 3, "it failed", env
		if err := tx.SaveSandbox(row); err != nil {
			return err
		}
		refused, err := tx.Part(func(tx *ledger.Tx) error {
			row.Attempts = 4
			return errors.Join(tx.SaveSandbox(row), errors.New("no"))
		})
		if err != nil || refused == nil {
			t.Errorf("the part failed with %v, %v", refused, err)
		}
		row.LastError = ""
		return tx.SaveSandbox(row) // as it stands in memory: the part's undoing did not change it
	})
	read(t, store, func(tx *ledger.Tx) error {
		row, err := tx.Sandbox(id)
		if err != nil {
			return err
		}
		if row.Attempts != 4 || row.LastError != "" || !maps.Equal(row.Env, env) {
			t.Errorf("the row has %d attempts, the error %q and the variables %v", row.Attempts, row.LastError, row.Env)
		}
		return nil
	})
	write(t, store, func(tx *ledger.Tx) error {
		row, err := tx.Sandbox(id)
		if err != nil {
			return err
		}
		if err := tx.Observed([]string{id}); err != nil {
			return err
		}
		row.Attempts = 5
		return tx.SaveSandbox(row)
	})
	read(t, store, func(tx *ledger.Tx) error {
		row, err := tx.Sandbox(id)
		if err == nil && (row.ObservedAt == 0 || row.Attempts != 5) {
			t.Errorf("a save of another column took what was observed: %d, %d attempts", row.ObservedAt, row.Attempts)
		}
		return err
	})
}
