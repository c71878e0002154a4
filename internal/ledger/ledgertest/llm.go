package ledgertest

import (
	"testing"
	"time"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/ledger"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/ledger/modelcalls"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// llmCalls records model calls. Each counts once in the sums, however often its lines are recorded.
func (s suite) llmCalls(t *testing.T) {
	store := open(t, s.fresh(t), nil)
	var box *ledger.Sandbox
	write(t, store, func(tx *ledger.Tx) error {
		if err := Environment(tx, "catan-7"); err != nil {
			return err
		}
		box = Sandbox(tx, "catan-7", 1)
		return tx.CreateSandbox(box)
	})
	at := time.Date(2026, 8, 31, 23, 59, 0, 0, time.UTC)
	call := func(id string, outcome sandbox.LLMOutcome, cost sandbox.NanoUSD) sandbox.LLMCall {
		return sandbox.LLMCall{
			ID: id, EnvironmentID: "catan-7", LeaseID: box.Lease(), Generation: 1, SandboxID: box.ID, AgentDID: box.AgentDID,
			Route: "main", Model: "small", StartedAt: at, Outcome: outcome, Cost: cost,
			Tokens: sandbox.LLMTokens{Input: 10, CachedInput: 20, CacheWrite: 30, Output: 40},
		}
	}
	unknown := call("c-2", sandbox.LLMInterrupted, 500)
	unknown.Unknown, unknown.Tokens, unknown.Session = true, sandbox.LLMTokens{}, "game:7"
	for _, lines := range [][]sandbox.LLMCall{
		{call("c-1", sandbox.LLMRunning, 1000)},
		{call("c-1", sandbox.LLMCompleted, 7), call("c-2", sandbox.LLMRunning, 500), unknown},
		{call("c-1", sandbox.LLMCompleted, 7), unknown, call("c-3", sandbox.LLMRunning, 300)},
		{call("c-1", sandbox.LLMRunning, 1000)},
	} {
		write(t, store, func(tx *ledger.Tx) error {
			_, err := modelcalls.In(tx).Record(lines)
			return err
		})
	}
	want := sandbox.LLMUse{
		Calls: 2, Tokens: sandbox.LLMTokens{Input: 10, CachedInput: 20, CacheWrite: 30, Output: 40}, Cost: 507,
		UnknownCalls: 1, Unknown: 500,
	}
	read(t, store, func(tx *ledger.Tx) error {
		var days sandbox.LLMUse
		err := modelcalls.In(tx).Days("2026-08-31", "2026-09-01", func(d *modelcalls.Day) { days = days.Plus(d.Use()) })
		if err != nil || days != want {
			t.Errorf("the day has %+v, %v, want %+v", days, err, want)
		}
		months, err := modelcalls.In(tx).Months("catan-7", "2026-08")
		if err != nil || len(months) != 1 || months[0].Cost != 507 || months[0].Calls != 2 || months[0].Tokens != 100 {
			t.Errorf("the month has %+v, %v", months, err)
		}
		use, err := modelcalls.In(tx).OfSandboxes([]string{box.ID, "none"})
		if err != nil || len(use) != 1 || use[box.ID] != want {
			t.Errorf("the sandbox has %+v, %v", use, err)
		}
		if sum, err := modelcalls.In(tx).Reserved("catan-7"); err != nil || sum != 300 {
			t.Errorf("reserved are %d, %v", sum, err)
		}
		if left, err := modelcalls.In(tx).Abandoned("catan-7"); err != nil || len(left) != 0 {
			t.Errorf("abandoned are %+v, %v", left, err)
		}
		list, err := modelcalls.In(tx).List(sandbox.LLMCallQuery{LeaseID: box.Lease(), Limit: 2})
		if err != nil || len(list) != 2 || list[0].ID != "c-3" || list[1].ID != "c-2" || !list[1].Domain().Unknown {
			t.Errorf("the list has %+v, %v", list, err)
		}
		list, err = modelcalls.In(tx).List(sandbox.LLMCallQuery{Session: "game:7", Limit: 2})
		if err != nil || len(list) != 1 || list[0].ID != "c-2" || list[0].Domain().Session != "game:7" {
			t.Errorf("for a session, the list has %+v, %v", list, err)
		}
		return nil
	})
	write(t, store, func(tx *ledger.Tx) error {
		for range 2 {
			if err := modelcalls.In(tx).Begin("engine", "catan-7"); err != nil {
				return err
			}
		}
		return nil
	})
	read(t, store, func(tx *ledger.Tx) error {
		envs, err := modelcalls.In(tx).Brokered("engine")
		if err != nil || len(envs) != 1 || envs[0].ID != "catan-7" {
			t.Errorf("brokered are %+v, %v", envs, err)
		}
		return nil
	})
	write(t, store, func(tx *ledger.Tx) error { return modelcalls.In(tx).ForgetCursors("catan-7") })
	read(t, store, func(tx *ledger.Tx) error {
		if is, err := modelcalls.In(tx).IsBrokered("engine", "catan-7"); err != nil || is {
			t.Errorf("it is brokered: %t, %v", is, err)
		}
		return nil
	})
}
