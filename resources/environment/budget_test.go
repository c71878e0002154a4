package environment

import (
	"strings"
	"testing"

	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// A plan warns when 80 % of a budget is spent, and with other words when all of it is spent.
func TestABudgetThatIsNearlySpentIsReported(t *testing.T) {
	t.Parallel()
	for spent, says := range map[sandbox.NanoUSD]string{
		0:     "",
		7999:  "",
		8000:  "80 % Of The Budget",
		9999:  "80 % Of The Budget",
		10000: "All Of The Budget",
	} {
		env := sandbox.Environment{ID: "game", BudgetUse: &sandbox.BudgetUse{Month: "2026-01", Monthly: 10000, Spent: spent}}
		got := budgetNotice(env)
		if (says == "") != (len(got) == 0) {
			t.Errorf("of %d spent it says %v", spent, got)
		}
		if len(got) == 1 &&
			(!strings.HasPrefix(got[0].Summary(), says) || !strings.Contains(got[0].Detail(), "monthly_usd")) {
			t.Errorf("of %d spent it says %v", spent, got)
		}
	}
	use := &sandbox.BudgetUse{Month: "2026-01", Monthly: 10 * sandbox.USD, Spent: 9 * sandbox.USD, LLM: 7 * sandbox.USD}
	got := budgetNotice(sandbox.Environment{ID: "game", BudgetUse: use})
	if len(got) != 1 || !strings.Contains(got[0].Detail(), "for 2026-01, $7.00 of it on model calls; live leases") {
		t.Errorf("with model calls it says %v", got)
	}
	if got := budgetNotice(sandbox.Environment{ID: "game"}); len(got) != 0 {
		t.Errorf("without a budget it says %v", got)
	}
}
