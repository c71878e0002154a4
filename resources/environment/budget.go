package environment

import (
	"context"
	"fmt"
	"reflect"

	"github.com/hashicorp/terraform-plugin-framework/diag"
	"github.com/hashicorp/terraform-plugin-framework/path"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema"
	"github.com/hashicorp/terraform-plugin-framework/schema/validator"
	"github.com/hashicorp/terraform-plugin-framework/types"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/pricing"
	"github.com/sandbox-lease/terraform-provider-sandbox/provider/configured"
	"github.com/sandbox-lease/terraform-provider-sandbox/provider/diagnose"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// Budget is the budget attribute.
type Budget struct {
	MonthlyUSD types.String `tfsdk:"monthly_usd"`
}

func budgetAttribute() schema.SingleNestedAttribute {
	return schema.SingleNestedAttribute{
		Optional: true,
		MarkdownDescription: "Limit on the real cost, where `max_monthly_cost_usd` limits the estimate. Changed in " +
			"place, for the current month. Default: no limit.",
		Attributes: map[string]schema.Attribute{
			"monthly_usd": schema.StringAttribute{
				MarkdownDescription: "US dollars at list price for a calendar month (UTC), more than 0, such as `\"25.00\"`. " +
					"An acquire is refused if what is spent, and the next hour of live leases and of the new one, exceed it. " +
					"When it is spent, the reconciler ends the leases, by `budget`. Needs a price book, or routes in `llm`: without " +
					"prices nothing is ever spent, and the plan warns.",
				Required:   true,
				Validators: []validator.String{dollars{}},
			},
		},
	}
}

// expand returns nil while the amount is unknown.
func (b *Budget) expand() *sandbox.Budget {
	if b == nil || b.MonthlyUSD.IsNull() || b.MonthlyUSD.IsUnknown() {
		return nil
	}
	var budget sandbox.Budget
	if budget.Monthly.UnmarshalText([]byte(b.MonthlyUSD.ValueString())) != nil {
		return nil // its validator has reported it
	}
	return &budget
}

// planned returns what the plans of the environment's leases need to know about the budget.
func (b *Budget) planned() configured.PlannedBudget {
	if budget := b.expand(); budget != nil {
		return configured.PlannedBudget{Monthly: budget.Monthly}
	}
	return configured.PlannedBudget{Unknown: b != nil && b.MonthlyUSD.IsUnknown()}
}

// planBudget warns about a new amount that spending can never reach, because nothing has a price. A cap without prices
// is an error; a budget without prices is not, because the cost of model calls is known even if the engine has no
// prices.
func (r *Resource) planBudget(ctx context.Context, m, state *Model) diag.Diagnostics {
	budget := m.Budget.expand()
	if budget == nil || r.Provider == nil || m.Backend.IsUnknown() || len(m.LLM.Elements()) > 0 || m.LLM.IsUnknown() ||
		state != nil && reflect.DeepEqual(state.Budget.expand(), budget) && m.LLM.Equal(state.LLM) {
		return nil
	}
	books, err := r.Provider.Prices(ctx)
	if err != nil {
		return diagnose.Failed("Reading Prices Failed", err, nil)
	}
	book, ok := books[sandbox.Backend(m.Backend.ValueString())]
	if books == nil || ok && book != pricing.Free() {
		return nil
	}
	return diag.Diagnostics{
		diag.NewAttributeWarningDiagnostic(path.Root("budget").AtName("monthly_usd"), "No Prices For The Budget",
			fmt.Sprintf("Environment %s has budget.monthly_usd = %s, but there are no prices for the backend %s, so every "+
				"sandbox costs $0.00 and the budget is never spent. Set price_book in the provider's docker block or, with a "+
				"reconciler, its flag --docker-price-book.", orAssumed(m.Name, "whose name is known after apply"),
				budget.Monthly, m.Backend.ValueString())),
	}
}

// flattenBudget keeps how the model writes the amount while the amount stays the same.
func (m *Model) flattenBudget(is *sandbox.Budget) {
	if reflect.DeepEqual(m.Budget.expand(), is) {
		return
	}
	m.Budget = nil
	if is != nil {
		m.Budget = &Budget{MonthlyUSD: types.StringValue(is.Monthly.String())}
	}
}

// budgetNotice warns that spending has reached a threshold of the budget. Every plan repeats the warning, as for a
// failed check block, so that the operator can act before acquires are refused.
func budgetNotice(env sandbox.Environment) diag.Diagnostics {
	use := env.BudgetUse
	if use == nil || !use.Reached(sandbox.BudgetThresholds[0]) {
		return nil
	}
	spent := "80 %"
	if use.Reached(100) {
		spent = "All"
	}
	calls := ""
	if use.LLM > 0 {
		calls = fmt.Sprintf(", $%s of it on model calls", use.LLM)
	}
	return diag.Diagnostics{
		diag.NewWarningDiagnostic(fmt.Sprintf("%s Of The Budget Of Environment %s Is Spent", spent, env.ID), fmt.Sprintf(
			"Environment %s has spent $%s of its $%s for %s%s; live leases may still cost $%s, so $%s is left for new ones. "+
				"An acquire that could exceed the budget is refused. Raise budget.monthly_usd, or end leases that are not needed.",
			env.ID, use.Spent, use.Monthly, use.Month, calls, use.Reserved, use.Left())),
	}
}
