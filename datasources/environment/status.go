package environment

import (
	"github.com/hashicorp/terraform-plugin-framework/datasource/schema"
	"github.com/hashicorp/terraform-plugin-framework/types"

	"github.com/sandbox-lease/terraform-provider-sandbox/provider/value"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// Budget is the environment's budget and its use.
type Budget struct {
	Month       types.String `tfsdk:"month"`
	MonthlyUSD  types.String `tfsdk:"monthly_usd"`
	SpentUSD    types.String `tfsdk:"spent_usd"`
	ReservedUSD types.String `tfsdk:"reserved_usd"`
	LeftUSD     types.String `tfsdk:"left_usd"`
}

// WarmPool is the status of the environment's warm pool.
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
		MarkdownDescription: "The environment's budget and its use. Amounts are in US dollars. Null without a budget.",
		Computed:            true,
		Attributes: map[string]schema.Attribute{
			"month": schema.StringAttribute{
				MarkdownDescription: "The calendar month, in UTC, such as `2026-01`.",
				Computed:            true,
			},
			"monthly_usd": schema.StringAttribute{
				MarkdownDescription: "What sandboxes and model calls may cost in a month.",
				Computed:            true,
			},
			"spent_usd": schema.StringAttribute{
				MarkdownDescription: "Gross cost of sandboxes and model calls in the month so far.",
				Computed:            true,
			},
			"reserved_usd": schema.StringAttribute{
				MarkdownDescription: "What live leases are likely to cost in the next hour, and the most that running calls of " +
					"models can cost.",
				Computed: true,
			},
			"left_usd": schema.StringAttribute{
				MarkdownDescription: "What is neither spent nor reserved, at least 0.",
				Computed:            true,
			},
		},
	}
}

func poolAttribute() schema.Attribute {
	return schema.SingleNestedAttribute{
		MarkdownDescription: "Status of the environment's warm pool. Null without one.",
		Computed:            true,
		Attributes: map[string]schema.Attribute{
			"size": schema.Int64Attribute{MarkdownDescription: "Number of sandboxes that should wait.", Computed: true},
			"max_size": schema.Int64Attribute{
				MarkdownDescription: "Largest number after a burst of leases. Null if the pool does not grow.",
				Computed:            true,
			},
			"mode":    schema.StringAttribute{MarkdownDescription: "How sandboxes wait: `paused` or `running`.", Computed: true},
			"paused":  schema.BoolAttribute{MarkdownDescription: "Whether the pool creates no new sandboxes.", Computed: true},
			"ready":   schema.Int64Attribute{MarkdownDescription: "Number of sandboxes that wait.", Computed: true},
			"pending": schema.Int64Attribute{MarkdownDescription: "Number of sandboxes that are being created.", Computed: true},
			"failures": schema.Int64Attribute{
				MarkdownDescription: "Number of consecutive failed creations. At 8 the pool stops until the " +
					"environment changes.",
				Computed: true,
			},
			"last_error": schema.StringAttribute{MarkdownDescription: "Why the last creation failed.", Computed: true},
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
	p = sandbox.EnvironmentSpec{WarmPool: p}.WithDefaults().WarmPool // earlier releases had no mode
	if status == nil {                                               // older reconcilers do not send it
		status = &sandbox.PoolStatus{}
	}
	pool := &WarmPool{
		Size:      types.Int64Value(p.Size),
		Mode:      value.String(string(p.Mode)),
		Paused:    types.BoolValue(p.Paused),
		Ready:     types.Int64Value(status.Ready),
		Pending:   types.Int64Value(status.Pending),
		Failures:  types.Int64Value(status.Failures),
		LastError: value.String(status.LastError),
	}
	if p.MaxSize != 0 {
		pool.MaxSize = types.Int64Value(p.MaxSize)
	}
	return pool
}
