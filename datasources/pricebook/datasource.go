// Package pricebook is the Terraform data source sandbox_price_book.
package pricebook

import (
	"context"
	"fmt"
	"maps"
	"slices"

	"github.com/hashicorp/terraform-plugin-framework-validators/stringvalidator"
	"github.com/hashicorp/terraform-plugin-framework/datasource"
	"github.com/hashicorp/terraform-plugin-framework/datasource/schema"
	"github.com/hashicorp/terraform-plugin-framework/diag"
	"github.com/hashicorp/terraform-plugin-framework/schema/validator"
	"github.com/hashicorp/terraform-plugin-framework/types"

	"github.com/sandbox-lease/terraform-provider-sandbox/provider/configured"
	"github.com/sandbox-lease/terraform-provider-sandbox/provider/value"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// NewDataSource returns an unconfigured data source for the current prices of one backend.
func NewDataSource() datasource.DataSource {
	return configured.NewDataSource(configured.DataSource[Model]{
		Name: "price_book", Title: "Price Book", Schema: describe, Read: read,
	})
}

// Model is the data source in configuration and state.
type Model struct {
	Backend      types.String `tfsdk:"backend"`
	Name         types.String `tfsdk:"name"`
	Source       types.String `tfsdk:"source"`
	AsOf         types.String `tfsdk:"as_of"`
	Memory       types.String `tfsdk:"memory_gib_second_usd"`
	CPU          types.String `tfsdk:"cpu_second_usd"`
	Disk         types.String `tfsdk:"disk_gb_second_usd"`
	AsleepMemory types.String `tfsdk:"asleep_memory_gib_second_usd"`
	AsleepDisk   types.String `tfsdk:"asleep_disk_gb_second_usd"`
	PlanMonth    types.String `tfsdk:"plan_month_usd"`
	Included     *Included    `tfsdk:"included"`
}

// Included is the usage that the plan's fee covers.
type Included struct {
	MemoryGiBSeconds types.Int64 `tfsdk:"memory_gib_seconds"`
	CPUSeconds       types.Int64 `tfsdk:"cpu_seconds"`
	DiskGBSeconds    types.Int64 `tfsdk:"disk_gb_seconds"`
}

func describe() schema.Schema {
	text := func(description string) schema.Attribute {
		return schema.StringAttribute{MarkdownDescription: description, Computed: true}
	}
	dollars := func(description string) schema.Attribute { return text(description + " In US dollars, exact.") }
	figure := func(description string) schema.Attribute {
		return schema.Int64Attribute{MarkdownDescription: description, Computed: true}
	}
	return schema.Schema{
		MarkdownDescription: "The prices that the lease service applies to usage from now on: those of the reconciler, " +
			"or of this provider if it keeps the ledger itself. Earlier usage keeps the price that was valid " +
			"then. See the [guide on costs](../guides/costs.md).",
		Attributes: map[string]schema.Attribute{
			"backend": schema.StringAttribute{
				MarkdownDescription: "Backend whose prices to read: `docker` or `cloudflare`. Default: `docker`.",
				Optional:            true,
				Computed:            true,
				Validators:          []validator.String{stringvalidator.OneOf(string(sandbox.Docker), string(sandbox.Cloudflare))},
			},
			"name":                         text("Name of the price book; `free` if none is configured."),
			"source":                       text("Source of the prices."),
			"as_of":                        text("Date of the source, such as `2026-01-31`. Null without one."),
			"memory_gib_second_usd":        dollars("One GiB of memory for a second, awake."),
			"cpu_second_usd":               dollars("One second of one CPU, as used."),
			"disk_gb_second_usd":           dollars("One GB of disk for a second, awake."),
			"asleep_memory_gib_second_usd": dollars("One GiB of memory for a second, asleep."),
			"asleep_disk_gb_second_usd":    dollars("One GB of disk for a second, asleep."),
			"plan_month_usd":               dollars("The plan's fee for one account and calendar month."),
			"included": schema.SingleNestedAttribute{
				MarkdownDescription: "What the plan includes, for one account and calendar month.",
				Computed:            true,
				Attributes: map[string]schema.Attribute{
					"memory_gib_seconds": figure("Memory in GiB-seconds."),
					"cpu_seconds":        figure("CPU time in seconds of one CPU."),
					"disk_gb_seconds":    figure("Disk in GB-seconds."),
				},
			},
		},
	}
}

func read(ctx context.Context, p *configured.Provider, m *Model) (diag.Diagnostics, error) {
	backend := sandbox.Docker
	if !m.Backend.IsNull() {
		backend = sandbox.Backend(m.Backend.ValueString())
	}
	svc, err := p.Open(ctx)
	if err != nil {
		return nil, err
	}
	info, err := svc.Ledger(ctx)
	if err != nil {
		return nil, err
	}
	book, ok := info.PriceBooks[backend]
	if !ok {
		return diag.Diagnostics{diag.NewErrorDiagnostic("Reading Price Book Failed",
			fmt.Sprintf("The lease service has no sandboxes on %s and so no prices for it, only for %v.",
				backend, slices.Sorted(maps.Keys(info.PriceBooks))))}, nil
	}
	*m = flatten(backend, book)
	return nil, nil
}

func flatten(backend sandbox.Backend, b sandbox.PriceBook) Model {
	text := func(n sandbox.NanoUSD) types.String { return types.StringValue(n.String()) }
	return Model{
		Backend:      value.String(backend),
		Name:         types.StringValue(b.Name),
		Source:       types.StringValue(b.Source),
		AsOf:         value.String(b.AsOf),
		Memory:       text(b.MemoryGiBSecond),
		CPU:          text(b.CPUSecond),
		Disk:         text(b.DiskGBSecond),
		AsleepMemory: text(b.AsleepMemoryGiBSecond),
		AsleepDisk:   text(b.AsleepDiskGBSecond),
		PlanMonth:    text(b.PlanMonth),
		Included: &Included{
			MemoryGiBSeconds: types.Int64Value(b.Included.MemoryGiBSeconds),
			CPUSeconds:       types.Int64Value(b.Included.CPUSeconds),
			DiskGBSeconds:    types.Int64Value(b.Included.DiskGBSeconds),
		},
	}
}
