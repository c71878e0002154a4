package environment

import (
	"context"
	"fmt"
	"maps"
	"strings"

	"github.com/hashicorp/terraform-plugin-framework-timeouts/resource/timeouts"
	"github.com/hashicorp/terraform-plugin-framework-validators/float64validator"
	"github.com/hashicorp/terraform-plugin-framework-validators/int64validator"
	"github.com/hashicorp/terraform-plugin-framework-validators/objectvalidator"
	"github.com/hashicorp/terraform-plugin-framework-validators/setvalidator"
	"github.com/hashicorp/terraform-plugin-framework-validators/stringvalidator"
	"github.com/hashicorp/terraform-plugin-framework/path"
	"github.com/hashicorp/terraform-plugin-framework/resource"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema/booldefault"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema/float64default"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema/int64default"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema/planmodifier"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema/stringdefault"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema/stringplanmodifier"
	"github.com/hashicorp/terraform-plugin-framework/schema/validator"
	"github.com/hashicorp/terraform-plugin-framework/types"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/pricing"
	"github.com/sandbox-lease/terraform-provider-sandbox/provider/duration"
	"github.com/sandbox-lease/terraform-provider-sandbox/provider/timeout"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// Schema describes the resource.
func (r *Resource) Schema(ctx context.Context, _ resource.SchemaRequest, resp *resource.SchemaResponse) {
	resp.Schema = schema.Schema{
		MarkdownDescription: "An environment is a game, campaign or task whose agents lease sandboxes. It decides what every lease gets: " +
			"image, size, network, time to live and the conditions that end it.\n\n" +
			"Changes are made in place, except where an attribute says that changing it replaces the environment; sandboxes that already run keep their image and size, the next ones get the new. " +
			"An environment that a condition ended stays in Terraform's state with `status = \"ended\"`: raise `epoch` to reopen it.",
		Attributes: attributes(),
		Blocks:     blocks(),
	}
	resp.Schema.Blocks["timeouts"] = timeout.Block(ctx, timeouts.Opts{
		Create: true, CreateDescription: "How long making the environment may take. Default: `15m`.",
		Update: true, UpdateDescription: "How long changing it may take, secrets of living sandboxes included. Default: `15m`.",
		Delete: true, DeleteDescription: "How long to wait until nothing is left of it. Default: `10m`.",
	})
}

func attributes() map[string]schema.Attribute {
	all := map[string]schema.Attribute{
		"name": schema.StringAttribute{
			MarkdownDescription: "Name, and id, of the environment. Game servers name it in the conditions that they post. " +
				"1 to 63 characters of `a-z`, `0-9`, `.`, `_` and `-`, beginning with a letter or digit. **Changing it replaces the environment.**",
			Required:      true,
			PlanModifiers: []planmodifier.String{stringplanmodifier.RequiresReplace()},
		},
		"type": schema.StringAttribute{
			MarkdownDescription: "`rpg`, `catan`, `coding` or `custom`; decides the default of `expiry_conditions`. Default: `custom`.",
			Optional:            true,
			Computed:            true,
			Default:             stringdefault.StaticString(string(sandbox.TypeCustom)),
		},
		"backend": schema.StringAttribute{
			MarkdownDescription: "Where sandboxes run: `docker`, or `cloudflare`, on the account of the provider's `cloudflare` block or of the reconciler; the guide *Cloudflare* says what differs. Default: `docker`. **Changing it replaces the environment.**",
			Optional:            true,
			Computed:            true,
			Default:             stringdefault.StaticString(string(sandbox.Docker)),
			PlanModifiers:       []planmodifier.String{stringplanmodifier.RequiresReplace()},
		},
		"image": schema.StringAttribute{
			MarkdownDescription: "Image of the sandboxes, present on the engine. Best the `reference` of a `sandbox_container_image`, which is pinned. " +
				"Sandboxes that already run keep theirs.",
			Required: true,
		},
		"instance_type": schema.StringAttribute{
			MarkdownDescription: "Size of a sandbox by name: " + instanceTypes() + ". Conflicts with `resources`. Default: the defaults of `resources`, and on Cloudflare `basic`.",
			Optional:            true,
			Validators:          []validator.String{stringvalidator.OneOf(instanceTypeNames()...)},
		},
		"force_destroy": schema.BoolAttribute{
			MarkdownDescription: "Destroy the environment even while agents that this configuration does not know hold leases in it; these end by `environment`. " +
				"Without it, such leases make the destroy fail and are named. Default: `false`.",
			Optional: true,
			Computed: true,
			Default:  booldefault.StaticBool(false),
		},
		"epoch": schema.Int64Attribute{
			MarkdownDescription: "Raise it by one to reopen an environment that a condition ended. It must never go down. Default: `0`.",
			Optional:            true,
			Computed:            true,
			Default:             int64default.StaticInt64(0),
			Validators:          []validator.Int64{int64validator.AtLeast(0)},
		},
		"labels": schema.MapAttribute{
			MarkdownDescription: "Free labels of the environment, kept in the ledger. Changed in place. Default: none.",
			Optional:            true,
			ElementType:         types.StringType,
		},
		"max_monthly_cost_usd": schema.StringAttribute{
			MarkdownDescription: "Largest `estimated_monthly_cost_usd` that may be planned, in US dollars, such as `\"25.00\"`; an estimate above it is an error of the plan. Needs `expected_usage`. Default: no limit.",
			Optional:            true,
			Validators:          []validator.String{dollars{}, stringvalidator.AlsoRequires(path.MatchRoot("expected_usage"))},
		},
	}
	all["secrets"] = secretsAttribute()
	maps.Copy(all, variableAttributes())
	maps.Copy(all, contentAttributes())
	maps.Copy(all, leaseAttributes())
	maps.Copy(all, computedAttributes())
	return all
}

// leaseAttributes are the settings that a lease takes over and may overrule.
func leaseAttributes() map[string]schema.Attribute {
	return map[string]schema.Attribute{
		"ttl": durationAttribute("A lease ends this long after its last activity: a command that exits 0, a file transfer, a renewal. At least `1s`.", sandbox.DefaultTTL),
		"max_lifetime": durationAttribute("A lease ends this long after it began, however often it is renewed; no code of a sandbox runs beyond it, even when nothing else works. "+
			"`1s` to `8760h`. Leases that exist keep theirs.", sandbox.DefaultMaxLifetime),
		"sleep_after": durationAttribute("A sandbox that was not used for this long sleeps until it is used again; `0s` turns that off. It needs a running reconciler.", sandbox.DefaultSleepAfter),
		"post_mortem": durationAttribute("How long a sandbox that failed after it was ready is kept, stopped, to be looked at, at most `720h`; `0s` removes it at once. Changed in place.", sandbox.DefaultPostMortem),
		"sleep_mode": schema.StringAttribute{
			MarkdownDescription: "`pause` keeps processes and memory, `stop` ends processes and frees memory; both keep `/workspace`. On Cloudflare there is `stop` only, which keeps `/data` only. Default: `pause`, on Cloudflare `stop`.",
			Optional:            true,
			Computed:            true,
		},
		"expiry_conditions": schema.SetAttribute{
			MarkdownDescription: "Conditions that end leases of this environment: dotted names such as `game.finished`. " + defaultConditions(),
			Optional:            true,
			Computed:            true,
			ElementType:         types.StringType,
			Validators:          []validator.Set{setvalidator.SizeAtLeast(1)},
		},
	}
}

func computedAttributes() map[string]schema.Attribute {
	stable := func(description string) schema.StringAttribute {
		return schema.StringAttribute{
			MarkdownDescription: description,
			Computed:            true,
			PlanModifiers:       []planmodifier.String{stringplanmodifier.UseStateForUnknown()},
		}
	}
	return map[string]schema.Attribute{
		"id":        stable("The same as `name`."),
		"owner":     stable("Who may change the environment: an id that was issued to this object when it was created."),
		"ledger_id": stable("Ledger that the environment is kept in. With another ledger behind the provider, a plan is an error and not a removal."),
		"instance": schema.StringAttribute{
			MarkdownDescription: "Backend instance that the environment is on, for Docker the engine's id. Default: the one that answers when the environment is created. " +
				"When another one answers, an apply is an error. To move the environment there, set this to its id (`docker info --format '{{.ID}}'`) once its leases are over.",
			Optional:      true,
			Computed:      true,
			PlanModifiers: []planmodifier.String{stringplanmodifier.UseStateForUnknown()},
			Validators:    []validator.String{stringvalidator.LengthAtLeast(1)},
		},
		"status":   stable("`open`; `ended` once a condition ended the environment for new leases; `deleting` once its removal has begun and not come to its end, which replaces it."),
		"ended_by": stable("Condition that ended the environment."),
		"ended_at": stable("When it ended, RFC 3339 in UTC."),
		"estimated_monthly_cost_usd": schema.StringAttribute{
			MarkdownDescription: "What a month of 30 days is expected to cost in US dollars, known at plan: `expected_usage` at the prices of the provider's `docker.price_book`, after what the plan's fee includes. " +
				"Null without `expected_usage`, `0.00` without a price book. What was really used is in the `sandbox_cost` data source.",
			Computed: true,
		},
		"estimated_monthly_cost_per_lease_usd": schema.StringAttribute{
			MarkdownDescription: "The same, divided by the number of leases.",
			Computed:            true,
		},
		"estimated_monthly_platform_cost_usd": schema.StringAttribute{
			MarkdownDescription: "What Cloudflare is expected to bill in such a month for requests and Durable Objects, in US dollars: beside `estimated_monthly_cost_usd`, and part of no report and no budget. " +
				"Every command and every reading of what a sandbox uses, each 30 s, is one request to the Worker and one to its object, which has 128 MB while the sandbox is awake. " +
				fmt.Sprintf("[List prices](%s) of %s, after what the plan includes. Null on Docker, and without `expected_usage`.", pricing.CloudflarePlatform().Source, pricing.CloudflarePlatform().AsOf),
			Computed: true,
		},
		"drift": schema.ListAttribute{
			MarkdownDescription: "What others have changed of what the environment is deployed with, on Cloudflare: image, size, number of instances, Worker. " +
				"A plan that finds some changes it back to none, which deploys the environment again.",
			Computed:    true,
			ElementType: types.StringType,
		},
	}
}

func blocks() map[string]schema.Block {
	return map[string]schema.Block{
		"resources": schema.SingleNestedBlock{
			MarkdownDescription: "Size of a sandbox by figures. Conflicts with `instance_type`. Below 512 MiB or half a core there are only the sizes that have a name.",
			Validators:          []validator.Object{objectvalidator.ConflictsWith(path.MatchRoot("instance_type"))},
			Attributes: map[string]schema.Attribute{
				"memory_mb":  limit("Memory limit in MiB, 512 to 32768.", sandbox.DefaultResources.MemoryMB),
				"pids_limit": limit("Largest number of processes and threads, 32 to 4096.", sandbox.DefaultResources.PIDs),
				"disk_mb":    limit("Disk size in MB, 1024 to 102400. It is billed. On Docker, programs that keep more in `/workspace` and `/data` together are ended.", sandbox.DefaultResources.DiskMB),
				"cpus": schema.Float64Attribute{
					MarkdownDescription: "CPU limit in cores, 0.5 to 16, in steps of 0.001. Default: `2`.",
					Optional:            true,
					Computed:            true,
					Default:             float64default.StaticFloat64(cores(sandbox.DefaultResources.CPUMillis)),
				},
			},
		},
		"network":     networkBlock(),
		"warm_pool":   poolBlock(),
		"budget":      budgetBlock(),
		"mount":       mountBlock(),
		"copy":        copyBlock(),
		"state":       stateBlock(),
		"confinement": confinementBlock(),
		"post_start":  postStartBlock(),
		"process":     processBlock(),
		"expected_usage": schema.SingleNestedBlock{
			MarkdownDescription: "How much the environment is expected to be used, for the estimated cost. It limits nothing.",
			Attributes: map[string]schema.Attribute{
				"leases": schema.Int64Attribute{
					MarkdownDescription: "How many agents hold a lease, 1 to 1000000. Default: `1`.",
					Optional:            true,
					Computed:            true,
					Default:             int64default.StaticInt64(1),
					Validators:          []validator.Int64{int64validator.Between(1, 1_000_000)},
				},
				"hours_per_day": schema.Float64Attribute{
					MarkdownDescription: "How long each sandbox is awake on each day, 0 to 24 hours. Default: `24`.",
					Optional:            true,
					Computed:            true,
					Default:             float64default.StaticFloat64(24),
					Validators:          []validator.Float64{float64validator.Between(0, 24)},
				},
				"cpu_share_percent": schema.Int64Attribute{
					MarkdownDescription: "Which part of its CPU limit a sandbox uses while it is awake, 0 to 100 per cent. Default: `100`.",
					Optional:            true,
					Computed:            true,
					Default:             int64default.StaticInt64(100),
					Validators:          []validator.Int64{int64validator.Between(0, 100)},
				},
				"commands_per_hour": schema.Int64Attribute{
					MarkdownDescription: "How many commands run in each sandbox in an hour in which it is awake, 0 to 1000000: only `estimated_monthly_platform_cost_usd` depends on it. " +
						fmt.Sprintf("Default: `%d`, one a minute.", pricing.DefaultCommandsPerHour),
					Optional:   true,
					Validators: []validator.Int64{int64validator.Between(0, 1_000_000)},
				},
			},
		},
	}
}

func durationAttribute(description string, def sandbox.Duration) schema.StringAttribute {
	text := duration.New(def).ValueString()
	return schema.StringAttribute{
		MarkdownDescription: description + " A duration such as `90s`, `5m` or `24h`. Default: `" + text + "`.",
		Optional:            true,
		Computed:            true,
		CustomType:          duration.Type{},
		Default:             stringdefault.StaticString(text),
		PlanModifiers:       []planmodifier.String{duration.KeepEqual()},
	}
}

func limit(description string, def int64) schema.Int64Attribute {
	return schema.Int64Attribute{
		MarkdownDescription: description + " Default: `" + types.Int64Value(def).String() + "`.",
		Optional:            true,
		Computed:            true,
		Default:             int64default.StaticInt64(def),
	}
}

func instanceTypeNames() []string {
	var names []string
	for _, t := range sandbox.InstanceTypes {
		names = append(names, t.Name)
	}
	return names
}

func instanceTypes() string {
	var list []string
	for _, t := range sandbox.InstanceTypes {
		list = append(list, describeInstanceType(t))
	}
	return strings.Join(list, ", ")
}

func defaultConditions() string {
	text := "Default: "
	for i, t := range sandbox.EnvironmentTypes {
		if i > 0 {
			text += "; "
		}
		text += "for `" + string(t) + "` `" + strings.Join(sandbox.DefaultExpiryConditions(t), "`, `") + "`"
	}
	return text + "."
}
