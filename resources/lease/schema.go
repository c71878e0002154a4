package lease

import (
	"context"

	"github.com/hashicorp/terraform-plugin-framework-timeouts/resource/timeouts"
	"github.com/hashicorp/terraform-plugin-framework-validators/mapvalidator"
	"github.com/hashicorp/terraform-plugin-framework-validators/setvalidator"
	"github.com/hashicorp/terraform-plugin-framework-validators/stringvalidator"
	"github.com/hashicorp/terraform-plugin-framework/resource"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema/float64planmodifier"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema/int64planmodifier"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema/planmodifier"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema/stringdefault"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema/stringplanmodifier"
	"github.com/hashicorp/terraform-plugin-framework/schema/validator"
	"github.com/hashicorp/terraform-plugin-framework/types"

	"github.com/sandbox-lease/terraform-provider-sandbox/provider/duration"
	"github.com/sandbox-lease/terraform-provider-sandbox/provider/given"
	"github.com/sandbox-lease/terraform-provider-sandbox/provider/timeout"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// The values of on_expiry.
const (
	onExpiryKeep     = "keep"
	onExpiryRecreate = "recreate"
)

// Schema describes the resource.
func (r *Resource) Schema(ctx context.Context, _ resource.SchemaRequest, resp *resource.SchemaResponse) {
	resp.Schema = schema.Schema{
		MarkdownDescription: "A lease gives one agent one sandbox in one environment. An agent has at most one lease in " +
			"an environment: if another owner holds it, the apply fails with the command that imports it. Changes renew the " +
			"lease in place, except where an attribute says that changing it replaces the lease. A replacement ends the old " +
			"lease first, so `create_before_destroy` does not work here: the apply then fails and the old lease stays " +
			"active.\n\n" +
			"**A lease that ends is not drift.** After its time is up, or a condition such as `game.finished` ended it, it " +
			"stays in the state with `status`, `ended_at`, `ended_by` and `end_reason`. The plan warns with the reason and " +
			"the cost; one warning covers all leases of an environment. Nothing is planned unless `on_expiry` is " +
			"`recreate`. **A sandbox that vanished or crashed is drift**: the plan says so and leases it again. If the " +
			"engine, the ledger or the reconciler is unreachable, the plan fails and the state stays.",
		Attributes: attributes(),
		Blocks: map[string]schema.Block{
			"timeouts": timeout.Block(ctx, timeouts.Opts{
				Create: true, CreateDescription: "Time limit until the sandbox accepts commands. Default: `5m`.",
				Delete: true, DeleteDescription: "Time limit until the sandbox is gone. Default: `5m`.",
			}),
		},
	}
}

func attributes() map[string]schema.Attribute {
	all := map[string]schema.Attribute{
		"agent_did": schema.StringAttribute{
			MarkdownDescription: "Decentralized identifier of the agent, such as `did:plc:abc`. **Changing it " +
				"replaces the lease.**",
			Required:      true,
			PlanModifiers: []planmodifier.String{stringplanmodifier.RequiresReplace()},
		},
		"environment_id": schema.StringAttribute{
			MarkdownDescription: "Name of the environment. Refer to a `sandbox_environment`, so that Terraform destroys the " +
				"lease first. **Changing it replaces the lease.**",
			Required:      true,
			PlanModifiers: []planmodifier.String{stringplanmodifier.RequiresReplace()},
		},
		"ttl": override("Time after the last activity at which the lease ends. At least `1s`."),
		"sleep_after": override("Idle time after which the sandbox sleeps; `0s` turns sleep off. Needs a running " +
			"reconciler."),
		"max_lifetime": override("Time after the start at which the lease ends, however often it is renewed. `1s` to "+
			"`8760h`. **Changing it replaces the lease**; for a lease that has ended it applies to the next generation.",
			stringplanmodifier.RequiresReplaceIf(replacesWhatLives,
				"If the lease has not ended, Terraform will destroy and recreate it.",
				"If the lease has not ended, Terraform will destroy and recreate it.")),
		"expiry_conditions": schema.SetAttribute{
			MarkdownDescription: "Conditions that end this lease, such as `game.finished`. At least one, at most 32. " +
				"Default: those of the environment.",
			Optional:    true,
			ElementType: types.StringType,
			Validators:  []validator.Set{setvalidator.SizeAtLeast(1), given.NoNulls{}},
		},
		"labels": schema.MapAttribute{
			MarkdownDescription: "Labels of this lease, in addition to those of the environment, whose values they cannot " +
				"change. Lists, events and costs can be filtered by them. Changed in place. At most 32, without commas. " +
				"Default: none.",
			Optional:    true,
			ElementType: types.StringType,
			Validators:  []validator.Map{mapvalidator.SizeAtMost(sandbox.MaxLabels), given.NoNulls{}},
		},
		"on_expiry": schema.StringAttribute{
			MarkdownDescription: "What to plan once the lease has ended: `keep` plans nothing; `recreate` leases the " +
				"sandbox again in place, as the next generation. If the environment has ended too, `recreate` waits, with a " +
				"warning, for the plan that raises its `epoch`. If its budget is spent, `recreate` waits for the next month, or " +
				"for the plan that raises `budget.monthly_usd`. A `keep` lease comes back with `terraform apply -replace`, or " +
				"with every epoch through `replace_triggered_by`. Default: `keep`.",
			Optional:   true,
			Computed:   true,
			Default:    stringdefault.StaticString(onExpiryKeep),
			Validators: []validator.String{stringvalidator.OneOf(onExpiryKeep, onExpiryRecreate)},
		},
	}
	for name, a := range computedAttributes() {
		all[name] = a
	}
	return all
}

func computedAttributes() map[string]schema.Attribute {
	return map[string]schema.Attribute{
		"id": computedString("`<agent_did>::<environment_id>`."),
		"owner": computedString("Owner, which may renew and release the lease: an id issued to this object at its " +
			"creation."),
		"ledger_id": computedString("Id of the ledger that has the lease. If the provider reaches another ledger, the " +
			"plan fails and the state stays."),
		"sandbox_id": computedString("Id of the sandbox. Never reused."),
		"generation": computedInt64("Generation: counts the sandboxes of the lease, from 1."),
		"status": computedString("`pending` while the sandbox starts, `active`, `expired` once the lease has ended, or " +
			"`destroyed` once the backend confirmed that the sandbox is gone."),
		"leased_at": computedString("Start of this generation, RFC 3339 in UTC."),
		"ended_at":  computedString("End of this generation, RFC 3339 in UTC."),
		"ended_by": computedString("What ended it: `condition`, `ttl`, `max_lifetime`, `budget`, `release`, " +
			"`environment` or `admin`."),
		"end_reason": computedString("The reason in words."),
		"cost_usd":   computedString("Cost of this generation in US dollars, exact. Null until it has ended."),
		"image":      computedString("Image of the sandbox, as the backend has it."),
		"memory_mb":  computedInt64("Memory limit in MiB, as the backend has it."),
		"cpus": schema.Float64Attribute{
			MarkdownDescription: "CPU limit in cores, as the backend has it.",
			Computed:            true,
			PlanModifiers:       []planmodifier.Float64{float64planmodifier.UseStateForUnknown()},
		},
		"pids_limit": computedInt64("Limit of processes and threads, as the backend has it."),
	}
}

func override(description string, modifiers ...planmodifier.String) schema.StringAttribute {
	return schema.StringAttribute{
		MarkdownDescription: description + " A duration such as `90s`, `5m` or `24h`. Default: that of the environment.",
		Optional:            true,
		CustomType:          duration.Type{},
		PlanModifiers:       append([]planmodifier.String{duration.KeepEqual()}, modifiers...),
	}
}

func computedString(description string) schema.StringAttribute {
	return schema.StringAttribute{
		MarkdownDescription: description,
		Computed:            true,
		PlanModifiers:       []planmodifier.String{stringplanmodifier.UseStateForUnknown()},
	}
}

func computedInt64(description string) schema.Int64Attribute {
	return schema.Int64Attribute{
		MarkdownDescription: description,
		Computed:            true,
		PlanModifiers:       []planmodifier.Int64{int64planmodifier.UseStateForUnknown()},
	}
}
