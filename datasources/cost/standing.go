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

// Standing is where an environment stands in the month that goes on.
type Standing struct {
	EnvironmentID types.String `tfsdk:"environment_id"`
	Month         types.String `tfsdk:"month"`
	Spent         types.String `tfsdk:"spent_usd"`
	Projected     types.String `tfsdk:"projected_usd"`
	Budget        types.String `tfsdk:"budget_usd"`
	Reserved      types.String `tfsdk:"reserved_usd"`
	Left          types.String `tfsdk:"left_usd"`
}

func standingAttribute() schema.Attribute {
	return schema.ListNestedAttribute{
		MarkdownDescription: "Where each selected environment that is not destroyed stands in the calendar month that goes on (UTC), by name, whatever agent and times are selected. Amounts are in US dollars at list price.",
		Computed:            true,
		NestedObject: schema.NestedAttributeObject{Attributes: map[string]schema.Attribute{
			"environment_id": text("Name of the environment."),
			"month":          text("The month, such as `2026-01`."),
			"spent_usd":      text("What its sandboxes have cost so far, exact."),
			"projected_usd":  text("What they will have cost by the end of the month if it goes on as it has since the month began, or since the environment was made; in whole cents. In the first hours it says little."),
			"budget_usd":     text("What the month may cost. Null without a budget."),
			"reserved_usd":   text("What living leases cost at most until they expire or the month ends. Null without a budget."),
			"left_usd":       text("What of the budget neither is spent nor reserved; not negative. Null without a budget."),
		}},
	}
}

// standings reads where the environments stand. An unknown environment has no standing.
func standings(ctx context.Context, svc service.Service, environmentID string, now time.Time) ([]Standing, error) {
	envs, err := environments(ctx, svc, environmentID)
	if err != nil {
		return nil, err
	}
	all := make([]Standing, len(envs))
	for i, env := range envs {
		report, err := svc.Costs(ctx, sandbox.CostQuery{EnvironmentID: env.ID, From: sandbox.MonthOf(now), GroupBy: sandbox.CostByEnvironment})
		if err != nil {
			return nil, err
		}
		all[i] = standing(env, report.Total.Gross, now)
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

func standing(env sandbox.Environment, spent sandbox.NanoUSD, now time.Time) Standing {
	s := Standing{
		EnvironmentID: value.String(env.ID), Month: types.StringValue(now.UTC().Format("2006-01")), Spent: types.StringValue(spent.String()),
		Projected: types.StringValue(sandbox.ProjectMonth(spent, env.CreatedAt, now).Cents()),
	}
	if use := env.BudgetUse; use != nil {
		s.Budget, s.Reserved, s.Left = types.StringValue(use.Monthly.String()), types.StringValue(use.Reserved.String()), types.StringValue(use.Left().String())
	}
	return s
}
