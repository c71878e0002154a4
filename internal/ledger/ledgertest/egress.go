package ledgertest

import (
	"testing"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/ledger"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

func (s suite) egressCursor(t *testing.T) {
	store := open(t, s.fresh(t), nil)
	const run = 1_800_000_000_000_000_000 // nanoseconds
	for line := range int64(3) {
		write(t, store, func(tx *ledger.Tx) error {
			return tx.SaveEgressCursor(ledger.EgressCursor{Instance: "engine-1", EnvironmentID: "catan-7", Run: run, Line: line})
		})
	}
	read(t, store, func(tx *ledger.Tx) error {
		for of, want := range map[[2]string]sandbox.GatewayPosition{
			{"engine-1", "catan-7"}: {Run: run, Line: 2}, {"engine-2", "catan-7"}: {}, {"engine-1", "catan-8"}: {},
		} {
			c, err := tx.EgressCursor(of[0], of[1])
			if err != nil || c.Position() != want || c.Instance != of[0] || c.EnvironmentID != of[1] {
				t.Errorf("%v is at %+v, %v", of, c, err)
			}
		}
		return nil
	})
}
