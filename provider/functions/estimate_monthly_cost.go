package functions

import (
	"context"
	"fmt"
	"math"
	"strings"
	"time"

	"github.com/hashicorp/terraform-plugin-framework/attr"
	"github.com/hashicorp/terraform-plugin-framework/function"
	"github.com/hashicorp/terraform-plugin-framework/types"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/pricing"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// estimateMonthlyCost estimates the cost of a month.
type estimateMonthlyCost struct{}

// monthlyCost is an estimate, in US dollars.
type monthlyCost struct {
	Total    string `tfsdk:"total_usd"`
	PerLease string `tfsdk:"per_lease_usd"`
	Memory   string `tfsdk:"memory_usd"`
	CPU      string `tfsdk:"cpu_usd"`
	Disk     string `tfsdk:"disk_usd"`
	Plan     string `tfsdk:"plan_usd"`
	Platform string `tfsdk:"platform_usd"`
}

// maxWhole limits the whole-number arguments.
const maxWhole = 1e6

// Metadata implements function.Function.
func (estimateMonthlyCost) Metadata(_ context.Context, _ function.MetadataRequest, resp *function.MetadataResponse) {
	resp.Name = "estimate_monthly_cost"
}

// Definition implements function.Function.
func (estimateMonthlyCost) Definition(_ context.Context, _ function.DefinitionRequest,
	resp *function.DefinitionResponse) {
	book := pricing.Cloudflare()
	dollars := make(map[string]attr.Type)
	for _, name := range []string{
		"total_usd", "per_lease_usd", "memory_usd", "cpu_usd", "disk_usd", "plan_usd", "platform_usd",
	} {
		dollars[name] = types.StringType
	}
	resp.Definition = function.Definition{
		Summary: "Expected monthly cost of sandboxes",
		MarkdownDescription: fmt.Sprintf("Returns the expected cost of leases for a month of %d days at the list prices "+
			"of Cloudflare Containers ([source](%s), read on %s), to compare sizes before an environment exists. The "+
			"computation is that of `estimated_monthly_cost_usd` of `sandbox_environment`, which uses the prices of its "+
			"backend.\n\n"+
			"The result is an object of `total_usd`, `per_lease_usd`, `memory_usd`, `cpu_usd`, `disk_usd`, `plan_usd` and "+
			"`platform_usd`: decimal strings of US dollars, rounded to cents. `platform_usd` is Cloudflare's bill for "+
			"requests and Durable Objects at one command a minute; it is not part of `total_usd` or of any report. The "+
			"plan's monthly fee and what it includes count once, as if nothing else used the account.",
			pricing.DaysPerMonth, book.Source, book.AsOf),
		Parameters: []function.Parameter{
			function.StringParameter{
				Name:                "instance_type",
				MarkdownDescription: "The size of a sandbox: `" + strings.Join(sizes(), "`, `") + "`.",
			},
			function.Float64Parameter{
				Name: "hours_per_day",
				MarkdownDescription: "Hours a day for which each sandbox is awake, 0 to 24. A sleeping sandbox costs nothing " +
					"there.",
			},
			function.Float64Parameter{
				Name:                "cpu_share_percent",
				MarkdownDescription: "CPU usage of an awake sandbox, 0 to 100 per cent of its limit.",
			},
			function.Float64Parameter{
				Name:                "leases",
				MarkdownDescription: "Number of leases at the same time, 0 to 1000000.",
			},
		},
		Return: function.ObjectReturn{AttributeTypes: dollars},
	}
}

func sizes() (names []string) {
	for _, t := range sandbox.InstanceTypes {
		names = append(names, t.Name)
	}
	return names
}

// Run implements function.Function.
func (estimateMonthlyCost) Run(ctx context.Context, req function.RunRequest, resp *function.RunResponse) {
	arguments := []string{"instance_type", "hours_per_day", "cpu_share_percent", "leases"}
	var (
		size                string
		hours, share, count float64
	)
	if resp.Error = req.Arguments.Get(ctx, &size, &hours, &share, &count); resp.Error != nil {
		return
	}
	r, known := sandbox.ResourcesOf(size)
	if !known {
		resp.Error = argument(0, "instance_type %q is none of %s", size, strings.Join(sizes(), ", "))
		return
	}
	if hours < 0 || hours > 24 { // hours must also fit a time.Duration
		resp.Error = argument(1, "hours_per_day must be between 0 and 24, not %g", hours)
		return
	}
	// The framework's own error for a fraction asks users to report it.
	for place, v := range map[int64]float64{2: share, 3: count} {
		if v != math.Trunc(v) || math.Abs(v) > maxWhole {
			resp.Error = argument(place, "%s must be a whole number of at most a million, not %g", arguments[place], v)
			return
		}
	}
	usage := pricing.Usage{
		Leases:          int64(count),
		HoursPerDay:     time.Duration(hours * float64(time.Hour)).Round(time.Second),
		CPUSharePercent: int64(share),
		CommandsPerHour: pricing.DefaultCommandsPerHour,
	}
	if err := usage.Validate(); err != nil {
		resp.Error = refused(err, arguments...)
		return
	}
	e := pricing.EstimateMonth(pricing.Cloudflare(), r, usage)
	resp.Error = resp.Result.Set(ctx, monthlyCost{Total: e.Total.Cents(), PerLease: e.PerLease.Cents(),
		Memory: e.Memory.Cents(), CPU: e.CPU.Cents(), Disk: e.Disk.Cents(), Plan: e.Plan.Cents(),
		Platform: pricing.EstimatePlatformMonth(pricing.CloudflarePlatform(), usage).Total.Cents()})
}
