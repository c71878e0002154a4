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

// estimateMonthlyCost tells what a month is expected to cost.
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

// maxWhole bounds how many leases there can be.
const maxWhole = 1e6

// Metadata implements function.Function.
func (estimateMonthlyCost) Metadata(_ context.Context, _ function.MetadataRequest, resp *function.MetadataResponse) {
	resp.Name = "estimate_monthly_cost"
}

// Definition implements function.Function.
func (estimateMonthlyCost) Definition(_ context.Context, _ function.DefinitionRequest, resp *function.DefinitionResponse) {
	book := pricing.Cloudflare()
	dollars := make(map[string]attr.Type)
	for _, name := range []string{"total_usd", "per_lease_usd", "memory_usd", "cpu_usd", "disk_usd", "plan_usd", "platform_usd"} {
		dollars[name] = types.StringType
	}
	resp.Definition = function.Definition{
		Summary: "What sandboxes of a size are expected to cost in a month",
		MarkdownDescription: fmt.Sprintf("Returns what leases are expected to cost in a month of %d days at the list prices of Cloudflare Containers ([source](%s), read on %s): "+
			"to compare sizes before an environment has one. It is the same computation as `estimated_monthly_cost_usd` of `sandbox_environment`, which goes by the prices of its backend instead.\n\n"+
			"The result is an object of `total_usd`, `per_lease_usd`, `memory_usd`, `cpu_usd`, `disk_usd`, `plan_usd` and `platform_usd`: decimal strings of US dollars, rounded to cents. "+
			"`platform_usd` is what Cloudflare bills beside for requests and Durable Objects, at a command a minute; it is no part of `total_usd`, nor of any report. "+
			"The monthly fee of the plan, and what it includes, are counted once, as if nothing else used the account.", pricing.DaysPerMonth, book.Source, book.AsOf),
		Parameters: []function.Parameter{
			function.StringParameter{Name: "instance_type", MarkdownDescription: "The size of a sandbox: `" + strings.Join(sizes(), "`, `") + "`."},
			function.Float64Parameter{Name: "hours_per_day", MarkdownDescription: "How long each sandbox is awake on each day, 0 to 24. A sandbox that sleeps costs nothing there."},
			function.Float64Parameter{Name: "cpu_share_percent", MarkdownDescription: "How much of its CPU limit each uses while it is awake, 0 to 100."},
			function.Float64Parameter{Name: "leases", MarkdownDescription: "How many leases there are at the same time, 0 to a million."},
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
	if hours < 0 || hours > 24 { // beyond what a duration can hold, too
		resp.Error = argument(1, "hours_per_day must be between 0 and 24, not %g", hours)
		return
	}
	// The framework's own error for what is no whole number asks to report it.
	for place, v := range map[int64]float64{2: share, 3: count} {
		if v != math.Trunc(v) || math.Abs(v) > maxWhole {
			resp.Error = argument(place, "%s must be a whole number of at most a million, not %g", arguments[place], v)
			return
		}
	}
	usage := pricing.Usage{Leases: int64(count), HoursPerDay: time.Duration(hours * float64(time.Hour)).Round(time.Second), CPUSharePercent: int64(share),
		CommandsPerHour: pricing.DefaultCommandsPerHour}
	if err := usage.Validate(); err != nil {
		resp.Error = refused(err, arguments...)
		return
	}
	e := pricing.EstimateMonth(pricing.Cloudflare(), r, usage)
	resp.Error = resp.Result.Set(ctx, monthlyCost{Total: e.Total.Cents(), PerLease: e.PerLease.Cents(),
		Memory: e.Memory.Cents(), CPU: e.CPU.Cents(), Disk: e.Disk.Cents(), Plan: e.Plan.Cents(),
		Platform: pricing.EstimatePlatformMonth(pricing.CloudflarePlatform(), usage).Total.Cents()})
}
