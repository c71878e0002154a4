package environment

import (
	"github.com/hashicorp/terraform-plugin-framework/datasource/schema"
	"github.com/hashicorp/terraform-plugin-framework/types"

	"github.com/sandbox-lease/terraform-provider-sandbox/provider/value"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// Budget is where the environment stands in its budget.
type Budget struct {
	Month       types.String `tfsdk:"month"`
	MonthlyUSD  types.String `tfsdk:"monthly_usd"`
	SpentUSD    types.String `tfsdk:"spent_usd"`
	ReservedUSD types.String `tfsdk:"reserved_usd"`
	LeftUSD     types.String `tfsdk:"left_usd"`
}

// WarmPool is where the environment's warm pool stands.
type WarmPool struct {
	Size      types.Int64  `tfsdk:"size"`
	MaxSize   types.Int64  `tfsdk:"max_size"`
	Mode      types.String `tfsdk:"mode"`
	Paused    types.Bool   `tfsdk:"paused"`
	Ready     types.Int64  `tfsdk:"ready"`
	Pending   types.Int64  `tfsdk:"pending"`
	Failures  types.Int64  `tfsdk:"failures"`
	LastError types.String `tfsdk:"last_error"`
}

func budgetAttribute() schema.Attribute {
	return schema.SingleNestedAttribute{
		MarkdownDescription: "Where the environment stands in its budget. Amounts are in US dollars. Null without a budget.",
		Computed:            true,
		Attributes: map[string]schema.Attribute{
			"month":        schema.StringAttribute{MarkdownDescription: "The calendar month, in UTC, such as `2026-01`.", Computed: true},
			"monthly_usd":  schema.StringAttribute{MarkdownDescription: "What the sandboxes of a month may cost.", Computed: true},
			"spent_usd":    schema.StringAttribute{MarkdownDescription: "What they have cost so far, at list price.", Computed: true},
			"reserved_usd": schema.StringAttribute{MarkdownDescription: "What living leases cost at most until they expire or the month ends.", Computed: true},
			"left_usd":     schema.StringAttribute{MarkdownDescription: "What neither is spent nor reserved; not negative.", Computed: true},
		},
	}
}

func poolAttribute() schema.Attribute {
	return schema.SingleNestedAttribute{
		MarkdownDescription: "Where the environment's warm pool stands. Null without one.",
		Computed:            true,
		Attributes: map[string]schema.Attribute{
			"size":       schema.Int64Attribute{MarkdownDescription: "How many sandboxes are to wait.", Computed: true},
			"max_size":   schema.Int64Attribute{MarkdownDescription: "How many may wait after a burst of leases. Null where the pool does not grow.", Computed: true},
			"mode":       schema.StringAttribute{MarkdownDescription: "How they wait: `paused` or `running`.", Computed: true},
			"paused":     schema.BoolAttribute{MarkdownDescription: "No new ones are made.", Computed: true},
			"ready":      schema.Int64Attribute{MarkdownDescription: "How many wait.", Computed: true},
			"pending":    schema.Int64Attribute{MarkdownDescription: "How many are being made.", Computed: true},
			"failures":   schema.Int64Attribute{MarkdownDescription: "How many could not be made, in a row. At 8 no more are tried until the environment is changed.", Computed: true},
			"last_error": schema.StringAttribute{MarkdownDescription: "Why the last one could not be made.", Computed: true},
		},
	}
}

func flattenBudget(use *sandbox.BudgetUse) *Budget {
	if use == nil {
		return nil
	}
	amount := func(n sandbox.NanoUSD) types.String { return types.StringValue(n.String()) }
	return &Budget{
		Month: types.StringValue(use.Month), MonthlyUSD: amount(use.Monthly), SpentUSD: amount(use.Spent),
		ReservedUSD: amount(use.Reserved), LeftUSD: amount(use.Left()),
	}
}

func flattenPool(p *sandbox.WarmPool, status *sandbox.PoolStatus) *WarmPool {
	if p == nil {
		return nil
	}
	p = sandbox.EnvironmentSpec{WarmPool: p}.WithDefaults().WarmPool // an earlier release knew no mode
	if status == nil {                                               // a reconciler of an older version tells none
		status = &sandbox.PoolStatus{}
	}
	pool := &WarmPool{
		Size: types.Int64Value(p.Size), Mode: value.String(string(p.Mode)), Paused: types.BoolValue(p.Paused), Ready: types.Int64Value(status.Ready),
		Pending: types.Int64Value(status.Pending), Failures: types.Int64Value(status.Failures), LastError: value.String(status.LastError),
	}
	if p.MaxSize != 0 {
		pool.MaxSize = types.Int64Value(p.MaxSize)
	}
	return pool
}
