package cost

import (
	"context"
	"time"

	"github.com/hashicorp/terraform-plugin-framework/datasource/schema"
	"github.com/hashicorp/terraform-plugin-framework/types"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/service"
	"github.com/sandbox-lease/terraform-provider-sandbox/provider/value"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// BudgetStatus compares an environment's cost of this month with its budget.
type BudgetStatus struct {
	EnvironmentID types.String `tfsdk:"environment_id"`
	Month         types.String `tfsdk:"month"`
	Spent         types.String `tfsdk:"spent_usd"`
	Projected     types.String `tfsdk:"projected_usd"`
	Budget        types.String `tfsdk:"budget_usd"`
	Reserved      types.String `tfsdk:"reserved_usd"`
	Left          types.String `tfsdk:"left_usd"`
}

func budgetStatusAttribute() schema.Attribute {
	return schema.ListNestedAttribute{
		MarkdownDescription: "Cost and budget of each selected environment that is not destroyed, in the current " +
			"calendar month (UTC), by name. The filters for agent, labels and time do not apply. Amounts are in US dollars at " +
			"list price, before what plans include.",
		Computed: true,
		NestedObject: schema.NestedAttributeObject{Attributes: map[string]schema.Attribute{
			"environment_id": text("Name of the environment."),
			"month":          text("The month, such as `2026-01`."),
			"spent_usd": text("Exact gross cost of its sandboxes and model calls in the month so far, which a budget " +
				"counts."),
			"projected_usd": text("Projected cost at the end of the month, at the rate since the month " +
				"or the environment began; in whole cents. It is rough in the first hours."),
			"budget_usd": text("Budget of the month. Null without a budget."),
			"reserved_usd": text("What live leases are likely to cost in the next hour, and the most that running model " +
				"calls can cost. Null without a budget."),
			"left_usd": text("Part of the budget that is neither spent nor reserved, at least 0. Null without a budget."),
		}},
	}
}

// budgetStatuses reads the budgets of environments. For an unknown environment it returns none.
func budgetStatuses(ctx context.Context, svc service.Service, environmentID string,
	now time.Time) ([]BudgetStatus, error) {
	envs, err := environments(ctx, svc, environmentID)
	if err != nil {
		return nil, err
	}
	all := make([]BudgetStatus, len(envs))
	for i, env := range envs {
		report, err := svc.Costs(ctx,
			sandbox.CostQuery{EnvironmentID: env.ID, From: sandbox.MonthOf(now), GroupBy: sandbox.CostByEnvironment})
		if err != nil {
			return nil, err
		}
		all[i] = budgetStatus(env, report.Total, now)
	}
	return all, nil
}

func environments(ctx context.Context, svc service.Service, id string) ([]sandbox.Environment, error) {
	if id == "" {
		return svc.ListEnvironments(ctx)
	}
	env, err := svc.GetEnvironment(ctx, id)
	if sandbox.CodeOf(err) == sandbox.NotFound || err == nil && env.Status == sandbox.EnvironmentDestroyed {
		return nil, nil
	}
	return []sandbox.Environment{env}, err
}

func budgetStatus(env sandbox.Environment, month sandbox.CostRow, now time.Time) BudgetStatus {
	spent := month.Spent()
	s := BudgetStatus{
		EnvironmentID: value.String(env.ID),
		Month:         types.StringValue(now.UTC().Format("2006-01")),
		Spent:         types.StringValue(spent.String()),
		Projected:     types.StringValue(sandbox.ProjectMonth(spent, env.CreatedAt, now).Cents()),
	}
	if use := env.BudgetUse; use != nil {
		s.Budget, s.Reserved, s.Left = types.StringValue(use.Monthly.String()), types.StringValue(use.Reserved.String()),
			types.StringValue(use.Left().String())
	}
	return s
}
