// Package cost is the Terraform data source sandbox_cost.
package cost

import (
	"context"
	"fmt"
	"maps"
	"math"
	"time"

	"github.com/hashicorp/terraform-plugin-framework-validators/stringvalidator"
	"github.com/hashicorp/terraform-plugin-framework/datasource"
	"github.com/hashicorp/terraform-plugin-framework/datasource/schema"
	"github.com/hashicorp/terraform-plugin-framework/schema/validator"
	"github.com/hashicorp/terraform-plugin-framework/types"

	"github.com/sandbox-lease/terraform-provider-sandbox/provider/configured"
	"github.com/sandbox-lease/terraform-provider-sandbox/provider/diagnose"
	"github.com/sandbox-lease/terraform-provider-sandbox/provider/value"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

var _ datasource.DataSourceWithConfigure = (*DataSource)(nil)

// NewDataSource returns the data source, not configured.
func NewDataSource() datasource.DataSource { return &DataSource{} }

// DataSource sums what leases have used and cost.
type DataSource struct {
	configured.DataSource
}

// Model is the data source in configuration and state.
type Model struct {
	EnvironmentID types.String `tfsdk:"environment_id"`
	AgentDID      types.String `tfsdk:"agent_did"`
	From          types.String `tfsdk:"from"`
	To            types.String `tfsdk:"to"`
	GroupBy       types.String `tfsdk:"group_by"`
	AsOf          types.String `tfsdk:"as_of"`
	Rows          []Row        `tfsdk:"rows"`
	Total         *Total       `tfsdk:"total"`
	Accounts      []Account    `tfsdk:"accounts"`
	Environments  []Standing   `tfsdk:"environments"`
}

// Row is one group.
type Row struct {
	EnvironmentID types.String `tfsdk:"environment_id"`
	AgentDID      types.String `tfsdk:"agent_did"`
	LeaseID       types.String `tfsdk:"lease_id"`
	Day           types.String `tfsdk:"day"`
	Month         types.String `tfsdk:"month"`
	Total
}

// Total is what a group has used and cost.
type Total struct {
	Generations types.Int64   `tfsdk:"generations"`
	AwakeHours  types.Float64 `tfsdk:"awake_hours"`
	AsleepHours types.Float64 `tfsdk:"asleep_hours"`
	CPUHours    types.Float64 `tfsdk:"cpu_hours"`
	Amounts
	Shadow Amounts `tfsdk:"shadow"`
}

// Amounts are what use costs, in US dollars.
type Amounts struct {
	Gross    types.String `tfsdk:"gross_usd"`
	Included types.String `tfsdk:"included_usd"`
	PlanFee  types.String `tfsdk:"plan_fee_usd"`
	Net      types.String `tfsdk:"net_usd"`
}

// Metadata names the data source.
func (d *DataSource) Metadata(_ context.Context, req datasource.MetadataRequest, resp *datasource.MetadataResponse) {
	resp.TypeName = req.ProviderTypeName + "_cost"
}

// Schema describes the data source.
func (d *DataSource) Schema(_ context.Context, _ datasource.SchemaRequest, resp *datasource.SchemaResponse) {
	moment := func(description string) schema.Attribute {
		return schema.StringAttribute{
			MarkdownDescription: description + " RFC 3339, such as `2026-01-31T00:00:00Z`.",
			Optional:            true,
			Validators:          []validator.String{rfc3339{}},
		}
	}
	resp.Schema = schema.Schema{
		MarkdownDescription: "What leases have used and cost: hours and US dollars, ended leases included and running ones up to now. " +
			"`gross_usd` is the sum of the usage at list price. What an account's plan includes and what it costs are shared among all that used the account in a calendar month; see the [guide on costs](../guides/costs.md).",
		Attributes: map[string]schema.Attribute{
			"environment_id": schema.StringAttribute{MarkdownDescription: "Only leases of this environment. Default: of all.", Optional: true},
			"agent_did":      schema.StringAttribute{MarkdownDescription: "Only leases of this agent. Default: of all.", Optional: true},
			"from":           moment("Only usage since then. Default: the beginning."),
			"to":             moment("Only usage until then. Default: now."),
			"group_by": schema.StringAttribute{
				MarkdownDescription: "What a row stands for: `lease`, `environment`, `agent`, `day` or `month` (UTC). Default: `lease`.",
				Optional:            true,
				Validators: []validator.String{stringvalidator.OneOf(string(sandbox.CostByLease), string(sandbox.CostByEnvironment),
					string(sandbox.CostByAgent), string(sandbox.CostByDay), string(sandbox.CostByMonth))},
			},
			"as_of": schema.StringAttribute{MarkdownDescription: "When the sums were made.", Computed: true},
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
			"environments": standingAttribute(),
		},
	}
}

func rowAttributes() map[string]schema.Attribute {
	text := func(description string) schema.Attribute {
		return schema.StringAttribute{MarkdownDescription: description + " Null when the group has more than one.", Computed: true}
	}
	attributes := map[string]schema.Attribute{
		"environment_id": text("Environment of the group."),
		"agent_did":      text("Agent of the group."),
		"lease_id":       text("Lease of the group."),
		"day":            text("Day of the group, such as `2026-01-31`."),
		"month":          text("Month of the group, such as `2026-01`."),
	}
	maps.Copy(attributes, totalAttributes())
	return attributes
}

func totalAttributes() map[string]schema.Attribute {
	hours := func(description string) schema.Attribute {
		return schema.Float64Attribute{MarkdownDescription: description, Computed: true}
	}
	attributes := map[string]schema.Attribute{
		"generations":  schema.Int64Attribute{MarkdownDescription: "Number of generations of leases.", Computed: true},
		"awake_hours":  hours("Hours that sandboxes were awake."),
		"asleep_hours": hours("Hours that they slept."),
		"cpu_hours":    hours("Hours of one CPU that they used."),
		"shadow": schema.SingleNestedAttribute{
			MarkdownDescription: "What the same usage would cost on Cloudflare, if each account were one there.",
			Computed:            true,
			Attributes:          amountAttributes(),
		},
	}
	maps.Copy(attributes, amountAttributes())
	return attributes
}

func amountAttributes() map[string]schema.Attribute {
	amount := func(description string) schema.Attribute {
		return schema.StringAttribute{MarkdownDescription: description + " In US dollars, exact.", Computed: true}
	}
	return map[string]schema.Attribute{
		"gross_usd":    amount("Sum of the usage at list price."),
		"included_usd": amount("Share of what the account's plan includes, which is taken off."),
		"plan_fee_usd": amount("Share of the account's plan fee."),
		"net_usd":      amount("`gross_usd` - `included_usd` + `plan_fee_usd`."),
	}
}

// Read sums the usage.
func (d *DataSource) Read(ctx context.Context, req datasource.ReadRequest, resp *datasource.ReadResponse) {
	var m Model
	resp.Diagnostics.Append(req.Config.Get(ctx, &m)...)
	if resp.Diagnostics.HasError() {
		return
	}
	svc, err := d.Provider.Open(ctx)
	var report sandbox.CostReport
	if err == nil {
		report, err = svc.Costs(ctx, m.query())
	}
	if err == nil {
		m.Environments, err = standings(ctx, svc, m.EnvironmentID.ValueString(), report.AsOf)
	}
	if err != nil {
		resp.Diagnostics.Append(diagnose.Failed("Reading Cost Failed", err, nil)...)
		return
	}
	m.flatten(report)
	resp.Diagnostics.Append(resp.State.Set(ctx, &m)...)
}

// query returns the configured query, whose times were validated.
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
			Day: value.String(r.Day), Month: value.String(r.Month), Total: total(r),
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
		Amounts:     amounts(r.Amounts),
		Shadow:      amounts(r.Shadow),
	}
}

func amounts(a sandbox.Amounts) Amounts {
	text := func(n sandbox.NanoUSD) types.String { return types.StringValue(n.String()) }
	return Amounts{Gross: text(a.Gross), Included: text(a.Included), PlanFee: text(a.PlanFee), Net: text(a.Net)}
}

// hours returns hours in millionths, which is 3.6 ms.
func hours(seconds float64) types.Float64 {
	return types.Float64Value(math.Round(seconds/3600*1e6) / 1e6)
}

// rfc3339 accepts a time.
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
		resp.Diagnostics.AddAttributeError(req.Path, "Invalid Time", fmt.Sprintf("%s %s, not %q.", req.Path, v.Description(ctx), req.ConfigValue.ValueString()))
	}
}
