package cost

import (
	"testing"
	"time"

	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// What an environment has spent is what its budget counts: sandboxes and model calls. So spent, reserved and left add
// up to the budget.
func TestSpentIncludesCallsOfModels(t *testing.T) {
	t.Parallel()
	month := sandbox.CostRow{Gross: sandbox.USD, LLM: sandbox.LLMUse{Cost: 2 * sandbox.USD}, Total: 3 * sandbox.USD}
	env := sandbox.Environment{ID: "catan-7", BudgetUse: &sandbox.BudgetUse{
		Month: "2026-11", Monthly: 10 * sandbox.USD, Spent: month.Total, LLM: month.LLM.Cost, Reserved: 4 * sandbox.USD,
	}}
	env.CreatedAt = time.Date(2026, 11, 1, 0, 0, 0, 0, time.UTC)
	s := budgetStatus(env, month, env.CreatedAt.AddDate(0, 0, 15))
	for name, got := range map[string][2]string{
		"spent_usd":     {s.Spent.ValueString(), "3.00"},
		"projected_usd": {s.Projected.ValueString(), "6.00"},
		"budget_usd":    {s.Budget.ValueString(), "10.00"},
		"reserved_usd":  {s.Reserved.ValueString(), "4.00"},
		"left_usd":      {s.Left.ValueString(), "3.00"},
	} {
		if got[0] != got[1] {
			t.Errorf("%s is %s, want %s", name, got[0], got[1])
		}
	}
}
