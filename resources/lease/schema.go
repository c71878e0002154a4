package lease

import (
	"context"

	"github.com/hashicorp/terraform-plugin-framework-timeouts/resource/timeouts"
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
	"github.com/sandbox-lease/terraform-provider-sandbox/provider/timeout"
)

// The values of on_expiry.
const (
	onExpiryKeep     = "keep"
	onExpiryRecreate = "recreate"
)

// Schema describes the resource.
func (r *Resource) Schema(ctx context.Context, _ resource.SchemaRequest, resp *resource.SchemaResponse) {
	resp.Schema = schema.Schema{
		MarkdownDescription: "A lease is the right of one agent to one sandbox in one environment. There is at most one per agent and environment; " +
			"a lease that something else holds is an error with the command that imports it. " +
			"Changes are made in place, by renewing it, except where an attribute says that changing it replaces the lease.\n\n" +
			"**A lease that ends is not drift.** When its time is up, or a condition such as `game.finished` ends it, it stays in the state with `status`, `ended_at`, `ended_by` and `end_reason`, " +
			"the plan shows one warning with the reason and what it cost, and, unless `on_expiry` is `recreate`, nothing is planned. " +
			"**A sandbox that vanished or crashed is drift**: the plan says so and leases it again. When engine, ledger or reconciler cannot be reached, the plan is an error and the state is kept.",
		Attributes: attributes(),
		Blocks: map[string]schema.Block{
			"timeouts": timeout.Block(ctx, timeouts.Opts{
				Create: true, CreateDescription: "How long to wait until the sandbox takes commands. Default: `5m`.",
				Delete: true, DeleteDescription: "How long to wait until the sandbox is gone. Default: `5m`.",
			}),
		},
	}
}

func attributes() map[string]schema.Attribute {
	all := map[string]schema.Attribute{
		"agent_did": schema.StringAttribute{
			MarkdownDescription: "Decentralized identifier of the agent, such as `did:plc:abc`. **Changing it replaces the lease.**",
			Required:            true,
			PlanModifiers:       []planmodifier.String{stringplanmodifier.RequiresReplace()},
		},
		"environment_id": schema.StringAttribute{
			MarkdownDescription: "Name of the environment; best a reference to a `sandbox_environment`, so that the lease is destroyed before it. **Changing it replaces the lease.**",
			Required:            true,
			PlanModifiers:       []planmodifier.String{stringplanmodifier.RequiresReplace()},
		},
		"ttl": override("The lease ends this long after its last activity. At least `1s`."),
		"sleep_after": override("The sandbox sleeps after it was not used for this long; `0s` turns that off. " +
			"It needs a running reconciler."),
		"max_lifetime": override("The lease ends this long after it began, however often it is renewed. `1s` to `8760h`. **Changing it replaces the lease.**",
			stringplanmodifier.RequiresReplace()),
		"expiry_conditions": schema.SetAttribute{
			MarkdownDescription: "Conditions that end this lease, such as `game.finished`. Default: those of the environment.",
			Optional:            true,
			ElementType:         types.StringType,
			Validators:          []validator.Set{setvalidator.SizeAtLeast(1)},
		},
		"on_expiry": schema.StringAttribute{
			MarkdownDescription: "What to plan once the lease has ended: `keep` plans nothing, `recreate` leases the sandbox again as the next generation. Default: `keep`.",
			Optional:            true,
			Computed:            true,
			Default:             stringdefault.StaticString(onExpiryKeep),
			Validators:          []validator.String{stringvalidator.OneOf(onExpiryKeep, onExpiryRecreate)},
		},
	}
	for name, a := range computedAttributes() {
		all[name] = a
	}
	return all
}

func computedAttributes() map[string]schema.Attribute {
	return map[string]schema.Attribute{
		"id":         computedString("`<agent_did>::<environment_id>`."),
		"owner":      computedString("Who may renew and release the lease: an id that was issued to this object when it was created."),
		"ledger_id":  computedString("Ledger that the lease is kept in. With another ledger behind the provider, a plan is an error and not a removal."),
		"sandbox_id": computedString("Id of the sandbox, never used again."),
		"generation": computedInt64("Counts the incarnations of the lease, from 1."),
		"status": computedString("`active`; `pending` while the sandbox is being made; `expired` when the lease has ended and its sandbox may still be there; " +
			"`destroyed` once the backend confirmed that it is gone."),
		"leased_at":  computedString("When this generation began, RFC 3339 in UTC."),
		"ended_at":   computedString("When it ended, RFC 3339 in UTC."),
		"ended_by":   computedString("Kind of the reason for which it ended: `condition`, `ttl`, `max_lifetime`, `budget`, `release`, `environment` or `admin`."),
		"end_reason": computedString("The reason in words."),
		"image":      computedString("Image that the sandbox runs; it changes when somebody changed the sandbox."),
		"memory_mb":  computedInt64("Memory limit in MiB, as it is on the backend."),
		"cpus": schema.Float64Attribute{
			MarkdownDescription: "CPU limit in cores, as it is on the backend.",
			Computed:            true,
			PlanModifiers:       []planmodifier.Float64{float64planmodifier.UseStateForUnknown()},
		},
		"pids_limit": computedInt64("Largest number of processes and threads, as it is on the backend."),
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
