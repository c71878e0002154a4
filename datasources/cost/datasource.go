// Package cost is the Terraform data source sandbox_cost.
package cost

import (
	"context"
	"fmt"
	"maps"
	"math"
	"regexp"
	"time"

	"github.com/hashicorp/terraform-plugin-framework-validators/stringvalidator"
	"github.com/hashicorp/terraform-plugin-framework/datasource"
	"github.com/hashicorp/terraform-plugin-framework/datasource/schema"
	"github.com/hashicorp/terraform-plugin-framework/diag"
	"github.com/hashicorp/terraform-plugin-framework/schema/validator"
	"github.com/hashicorp/terraform-plugin-framework/types"

	"github.com/sandbox-lease/terraform-provider-sandbox/provider/configured"
	"github.com/sandbox-lease/terraform-provider-sandbox/provider/given"
	"github.com/sandbox-lease/terraform-provider-sandbox/provider/labels"
	"github.com/sandbox-lease/terraform-provider-sandbox/provider/value"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// NewDataSource returns an unconfigured data source for the usage and cost of leases.
func NewDataSource() datasource.DataSource {
	return configured.NewDataSource(configured.DataSource[Model]{
		Name: "cost", Title: "Cost", Schema: describe, Read: read,
	})
}

// Model is the data source in configuration and state.
type Model struct {
	EnvironmentID types.String   `tfsdk:"environment_id"`
	AgentDID      types.String   `tfsdk:"agent_did"`
	Labels        types.Map      `tfsdk:"labels"`
	From          types.String   `tfsdk:"from"`
	To            types.String   `tfsdk:"to"`
	GroupBy       types.String   `tfsdk:"group_by"`
	AsOf          types.String   `tfsdk:"as_of"`
	Rows          []Row          `tfsdk:"rows"`
	Total         *Total         `tfsdk:"total"`
	Accounts      []Account      `tfsdk:"accounts"`
	Environments  []BudgetStatus `tfsdk:"environments"`
}

// Row is one group.
type Row struct {
	EnvironmentID types.String `tfsdk:"environment_id"`
	AgentDID      types.String `tfsdk:"agent_did"`
	LeaseID       types.String `tfsdk:"lease_id"`
	Day           types.String `tfsdk:"day"`
	Month         types.String `tfsdk:"month"`
	Label         types.String `tfsdk:"label"`
	Total
}

// Total is the usage and cost of a group.
type Total struct {
	Generations types.Int64   `tfsdk:"generations"`
	AwakeHours  types.Float64 `tfsdk:"awake_hours"`
	AsleepHours types.Float64 `tfsdk:"asleep_hours"`
	CPUHours    types.Float64 `tfsdk:"cpu_hours"`
	Gross       types.String  `tfsdk:"gross_usd"`
	LLM         LLM           `tfsdk:"llm"`
	Total       types.String  `tfsdk:"total_usd"`
	Shadow      types.String  `tfsdk:"shadow_gross_usd"`
}

// LLM is the usage of model calls.
type LLM struct {
	Calls        types.Int64  `tfsdk:"calls"`
	Input        types.Int64  `tfsdk:"input_tokens"`
	CachedInput  types.Int64  `tfsdk:"cached_input_tokens"`
	CacheWrite   types.Int64  `tfsdk:"cache_write_tokens"`
	Output       types.Int64  `tfsdk:"output_tokens"`
	Cost         types.String `tfsdk:"cost_usd"`
	UnknownCalls types.Int64  `tfsdk:"unknown_calls"`
	Unknown      types.String `tfsdk:"unknown_usd"`
}

// Amounts are what an account owes, in US dollars.
type Amounts struct {
	Gross    types.String `tfsdk:"gross_usd"`
	Included types.String `tfsdk:"included_usd"`
	PlanFee  types.String `tfsdk:"plan_fee_usd"`
	Net      types.String `tfsdk:"net_usd"`
}

// grouping matches valid values of group_by.
var grouping = regexp.MustCompile(`^(lease|environment|agent|day|month|label:.+)$`)

func describe() schema.Schema {
	moment := func(description string) schema.Attribute {
		return schema.StringAttribute{
			MarkdownDescription: description + " RFC 3339, such as `2026-01-31T00:00:00Z`.",
			Optional:            true,
			Validators:          []validator.String{rfc3339{}},
		}
	}
	return schema.Schema{
		MarkdownDescription: "Usage and cost of leases: hours and US dollars, including ended leases, and running leases " +
			"up to now, at list price. What an account's plan includes and costs stands in `accounts`; see the " +
			"[guide on costs](../guides/costs.md).",
		Attributes: map[string]schema.Attribute{
			"environment_id": schema.StringAttribute{
				MarkdownDescription: "Only leases of this environment. Default: all.",
				Optional:            true,
				Validators:          []validator.String{given.Text{}},
			},
			"agent_did": schema.StringAttribute{
				MarkdownDescription: "Only leases of this agent. Default: all.",
				Optional:            true,
				Validators:          []validator.String{given.Text{}},
			},
			"labels": labels.Filter("Only leases"),
			"from":   moment("Only usage since this time. Default: the beginning."),
			"to":     moment("Only usage until this time. Default: now."),
			"group_by": schema.StringAttribute{
				MarkdownDescription: "Group of a row: `lease`, `environment`, `agent`, `day`, `month` (UTC), or `label:<key>` " +
					"for the value of a label. Default: `lease`.",
				Optional: true,
				Validators: []validator.String{stringvalidator.RegexMatches(grouping,
					"must be lease, environment, agent, day, month or label:<key>")},
			},
			"as_of": schema.StringAttribute{MarkdownDescription: "When the report was computed.", Computed: true},
			"rows": schema.ListNestedAttribute{
				MarkdownDescription: "The groups.",
				Computed:            true,
				NestedObject:        schema.NestedAttributeObject{Attributes: rowAttributes()},
			},
			"total": schema.SingleNestedAttribute{
				MarkdownDescription: "The sum of all groups.",
				Computed:            true,
				Attributes:          totalAttributes(),
			},
			"accounts":     accountsAttribute(),
			"environments": budgetStatusAttribute(),
		},
	}
}

func rowAttributes() map[string]schema.Attribute {
	text := func(description string) schema.Attribute {
		return schema.StringAttribute{
			MarkdownDescription: description + " Null if the group has more than one.",
			Computed:            true,
		}
	}
	attributes := map[string]schema.Attribute{
		"environment_id": text("Environment of the group."),
		"agent_did":      text("Agent of the group."),
		"lease_id":       text("Lease of the group."),
		"day":            text("Day of the group, such as `2026-01-31`."),
		"month":          text("Month of the group, such as `2026-01`."),
		"label":          text("Value of the label of the group. Null for leases without the label."),
	}
	maps.Copy(attributes, totalAttributes())
	return attributes
}

func totalAttributes() map[string]schema.Attribute {
	hours := func(description string) schema.Attribute {
		return schema.Float64Attribute{MarkdownDescription: description, Computed: true}
	}
	return map[string]schema.Attribute{
		"generations":  schema.Int64Attribute{MarkdownDescription: "Number of generations of leases.", Computed: true},
		"awake_hours":  hours("Hours that sandboxes were awake."),
		"asleep_hours": hours("Hours that sandboxes were asleep."),
		"cpu_hours":    hours("CPU hours that sandboxes used."),
		"llm": schema.SingleNestedAttribute{
			MarkdownDescription: "What model calls used, at the list prices of their routes.",
			Computed:            true,
			Attributes:          llmAttributes(),
		},
		"gross_usd":        amount("Cost of the sandboxes at list price."),
		"total_usd":        amount("`gross_usd` + `llm.cost_usd`, which budgets count."),
		"shadow_gross_usd": amount("What the same usage of sandboxes would cost on Cloudflare at list price."),
	}
}

func amount(description string) schema.Attribute {
	return schema.StringAttribute{MarkdownDescription: description + " Exact, in US dollars.", Computed: true}
}

func amountAttributes() map[string]schema.Attribute {
	return map[string]schema.Attribute{
		"gross_usd":    amount("Sum of the usage at list price."),
		"included_usd": amount("Usage that the account's plan includes; it is subtracted."),
		"plan_fee_usd": amount("The account's plan fee."),
		"net_usd":      amount("`gross_usd` - `included_usd` + `plan_fee_usd`."),
	}
}

func llmAttributes() map[string]schema.Attribute {
	count := func(description string) schema.Attribute {
		return schema.Int64Attribute{MarkdownDescription: description, Computed: true}
	}
	return map[string]schema.Attribute{
		"calls":               count("Number of calls that have ended."),
		"input_tokens":        count("Input tokens that were neither read from the upstream's cache nor written to it."),
		"cached_input_tokens": count("Input tokens read from the upstream's cache."),
		"cache_write_tokens":  count("Input tokens written to the upstream's cache."),
		"output_tokens":       count("Output tokens, those of reasoning included."),
		"cost_usd":            amount("Cost of the calls."),
		"unknown_calls":       count("Calls whose upstream did not report what they used."),
		"unknown_usd":         amount("Part of `cost_usd`: the most that those calls can have cost."),
	}
}

func read(ctx context.Context, p *configured.Provider, m *Model) (diag.Diagnostics, error) {
	svc, err := p.Open(ctx)
	if err != nil {
		return nil, err
	}
	query := m.query()
	var diags diag.Diagnostics
	if query.Labels, diags = labels.Selector(ctx, m.Labels); diags.HasError() {
		return diags, nil
	}
	report, err := svc.Costs(ctx, query)
	if err != nil {
		return nil, err
	}
	m.Environments, err = budgetStatuses(ctx, svc, m.EnvironmentID.ValueString(), report.AsOf)
	m.flatten(report)
	return nil, err
}

// query returns the configured query. Its times are already validated.
func (m *Model) query() sandbox.CostQuery {
	from, _ := time.Parse(time.RFC3339, m.From.ValueString())
	to, _ := time.Parse(time.RFC3339, m.To.ValueString())
	return sandbox.CostQuery{
		EnvironmentID: m.EnvironmentID.ValueString(), AgentDID: m.AgentDID.ValueString(),
		From: from, To: to, GroupBy: sandbox.CostGroup(m.GroupBy.ValueString()),
	}
}

func (m *Model) flatten(report sandbox.CostReport) {
	m.AsOf = value.Time(report.AsOf)
	m.Rows = make([]Row, len(report.Rows))
	for i, r := range report.Rows {
		m.Rows[i] = Row{
			EnvironmentID: value.String(r.EnvironmentID), AgentDID: value.String(r.AgentDID), LeaseID: value.String(r.LeaseID),
			Day: value.String(r.Day), Month: value.String(r.Month), Label: value.String(r.Label), Total: total(r),
		}
	}
	sum := total(report.Total)
	m.Total = &sum
	m.Accounts = accounts(report.Accounts)
}

func total(r sandbox.CostRow) Total {
	return Total{
		Generations: types.Int64Value(r.Generations),
		AwakeHours:  hours(r.AwakeSeconds),
		AsleepHours: hours(r.AsleepSeconds),
		CPUHours:    hours(r.CPUSeconds),
		Gross:       types.StringValue(r.Gross.String()),
		LLM:         llm(r.LLM),
		Total:       types.StringValue(r.Total.String()),
		Shadow:      types.StringValue(r.Shadow.String()),
	}
}

func llm(u sandbox.LLMUse) LLM {
	return LLM{
		Calls: types.Int64Value(u.Calls), Input: types.Int64Value(u.Tokens.Input),
		CachedInput: types.Int64Value(u.Tokens.CachedInput), CacheWrite: types.Int64Value(u.Tokens.CacheWrite),
		Output: types.Int64Value(u.Tokens.Output), Cost: types.StringValue(u.Cost.String()),
		UnknownCalls: types.Int64Value(u.UnknownCalls), Unknown: types.StringValue(u.Unknown.String()),
	}
}

func amounts(a sandbox.Amounts) Amounts {
	text := func(n sandbox.NanoUSD) types.String { return types.StringValue(n.String()) }
	return Amounts{Gross: text(a.Gross), Included: text(a.Included), PlanFee: text(a.PlanFee), Net: text(a.Net)}
}

// hours converts to hours, rounded to a millionth (3.6 ms).
func hours(seconds float64) types.Float64 {
	return types.Float64Value(math.Round(seconds/3600*1e6) / 1e6)
}

// rfc3339 validates a time.
type rfc3339 struct{}

func (rfc3339) Description(context.Context) string {
	return "must be a time in RFC 3339, such as 2026-01-31T00:00:00Z"
}

func (v rfc3339) MarkdownDescription(ctx context.Context) string { return v.Description(ctx) }

func (v rfc3339) ValidateString(ctx context.Context, req validator.StringRequest, resp *validator.StringResponse) {
	if req.ConfigValue.IsNull() || req.ConfigValue.IsUnknown() {
		return
	}
	if _, err := time.Parse(time.RFC3339, req.ConfigValue.ValueString()); err != nil {
		resp.Diagnostics.AddAttributeError(req.Path, "Invalid Time",
			fmt.Sprintf("%s %s, not %q.", req.Path, v.Description(ctx), req.ConfigValue.ValueString()))
	}
}
