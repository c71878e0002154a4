package environment

import (
	"context"
	"fmt"
	"maps"
	"strings"

	"github.com/hashicorp/terraform-plugin-framework-timeouts/resource/timeouts"
	"github.com/hashicorp/terraform-plugin-framework-validators/int64validator"
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
	"github.com/sandbox-lease/terraform-provider-sandbox/provider/given"
	"github.com/sandbox-lease/terraform-provider-sandbox/provider/timeout"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// Schema describes the resource.
func (r *Resource) Schema(ctx context.Context, _ resource.SchemaRequest, resp *resource.SchemaResponse) {
	resp.Schema = schema.Schema{
		Version: 1,
		MarkdownDescription: "An environment is a game, campaign or task. It sets the image, size, network, time to live " +
			"and expiry conditions of the sandboxes that its agents lease.\n\n" +
			"Changes are made in place, except where an attribute says that changing it replaces the environment. Running " +
			"sandboxes keep what they began with, such as image, size, network mode and `env`; new ones get the change, and " +
			"the plan names the leases that do not. An environment that a condition ended stays in " +
			"Terraform's state with `status = \"ended\"`: raise `epoch` to reopen it.",
		Attributes: attributes(),
		Blocks: map[string]schema.Block{"timeouts": timeout.Block(ctx, timeouts.Opts{
			Create:            true,
			CreateDescription: "Time limit for creating the environment. Default: `15m`.",
			Update:            true,
			UpdateDescription: "Time limit for a change, secrets of running sandboxes included. Default: `15m`.",
			Delete:            true,
			DeleteDescription: "Time limit for removing everything. Default: `10m`.",
		})},
	}
}

func attributes() map[string]schema.Attribute {
	all := map[string]schema.Attribute{
		"name": schema.StringAttribute{
			MarkdownDescription: "Name and id of the environment, which game servers use in their conditions. 1 to 63 " +
				"characters of `a-z`, `0-9`, `.`, `_` and `-`, beginning with a letter or digit. **Changing it replaces the " +
				"environment.**",
			Required:      true,
			PlanModifiers: []planmodifier.String{stringplanmodifier.RequiresReplace()},
		},
		"type": schema.StringAttribute{
			MarkdownDescription: "Type: `rpg`, `catan`, `coding` or `custom`. Sets the default of `expiry_conditions`. " +
				"Default: `custom`.",
			Optional: true,
			Computed: true,
			Default:  stringdefault.StaticString(string(sandbox.TypeCustom)),
		},
		"backend": schema.StringAttribute{
			MarkdownDescription: "Backend: `docker`, or `cloudflare` with the account of the provider or of the reconciler. " +
				"The guide *Cloudflare* lists the differences. Default: `docker`. **Changing it replaces the environment.**",
			Optional:      true,
			Computed:      true,
			Default:       stringdefault.StaticString(string(sandbox.Docker)),
			PlanModifiers: []planmodifier.String{stringplanmodifier.RequiresReplace()},
		},
		"image": schema.StringAttribute{
			MarkdownDescription: "Image of the sandboxes. The engine must have it, or `image_pull` must let it pull the " +
				"image. Use the `reference` of a `sandbox_container_image`, which is pinned. Running sandboxes keep theirs.",
			Required: true,
		},
		"image_pull": schema.StringAttribute{
			MarkdownDescription: "`missing`: the engine pulls images that it does not have, those of companions too, when " +
				"the environment is created or changed. A reconciler logs in to registries with its `--registry-logins`. " +
				"`never`: an image that the engine does not have is an error. Docker only. Default: `never`.",
			Optional: true,
			Computed: true,
			Default:  stringdefault.StaticString(string(sandbox.PullNever)),
		},
		"instance_type": instanceTypeAttribute(),
		"force_destroy": schema.BoolAttribute{
			MarkdownDescription: "Destroy the environment even while leases of other owners are active in it; these end by " +
				"`environment`. Otherwise such leases fail the destroy, and the error names them. Default: `false`.",
			Optional: true,
			Computed: true,
			Default:  booldefault.StaticBool(false),
		},
		"epoch": schema.Int64Attribute{
			MarkdownDescription: "Raise it by one to reopen an environment that a condition ended. Its leases with " +
				"`on_expiry = \"recreate\"` come back in the same apply. Leases with `keep` come back if their `lifecycle` has " +
				"`replace_triggered_by = [sandbox_environment.<name>.epoch]`. Cannot be lowered. Default: `0`.",
			Optional:   true,
			Computed:   true,
			Default:    int64default.StaticInt64(0),
			Validators: []validator.Int64{int64validator.AtLeast(0)},
		},
		"labels": schema.MapAttribute{
			MarkdownDescription: "Labels of the environment and of its leases. Lists, events and costs can be filtered by " +
				"them; Docker objects have them with the prefix `io.sandbox-lease.label.`, as of their creation. At most 32, " +
				"without commas. Changed in place. Default: none.",
			Optional:    true,
			ElementType: types.StringType,
			Validators:  []validator.Map{given.NoNulls{}},
		},
		"max_monthly_cost_usd": schema.StringAttribute{
			MarkdownDescription: "Cap on `estimated_monthly_cost_usd` in US dollars, such as `\"25.00\"`. A higher estimate " +
				"is an error at plan. Needs `expected_usage` and a price book, the reconciler's or `docker.price_book` of the " +
				"provider. Default: no cap.",
			Optional:   true,
			Validators: []validator.String{dollars{}, stringvalidator.AlsoRequires(path.MatchRoot("expected_usage"))},
		},
	}
	all["secrets"] = secretsAttribute()
	maps.Copy(all, variableAttributes())
	maps.Copy(all, contentAttributes())
	maps.Copy(all, leaseAttributes())
	maps.Copy(all, nestedAttributes())
	maps.Copy(all, computedAttributes())
	return all
}

// leaseAttributes returns the settings that a lease inherits and may override.
func leaseAttributes() map[string]schema.Attribute {
	return map[string]schema.Attribute{
		"ttl": durationAttribute("Time after a lease's last activity at which it ends. Activity is a command while it "+
			"runs, the end of one that exits 0, a file transfer or a renewal. At least `1s`.", sandbox.DefaultTTL),
		"max_lifetime": durationAttribute("Time after a lease's start at which it ends, however often it is renewed. No "+
			"code in the sandbox runs after it, even if the reconciler and the engine fail. `1s` to `8760h`. Existing "+
			"leases keep theirs.",
			sandbox.DefaultMaxLifetime),
		"sleep_after": durationAttribute("Idle time after which a sandbox sleeps; `0s` turns sleep off. Needs a running "+
			"reconciler.", sandbox.DefaultSleepAfter),
		"post_mortem": durationAttribute("Time for which a sandbox that failed after it was ready is kept, stopped, for "+
			"inspection, at most `720h`; `0s` removes it at once. Changed in place.", sandbox.DefaultPostMortem),
		"command_timeout": durationAttribute("Time limit of commands that set none, `1s` to `24h`. Changed in place, also "+
			"for live leases.", sandbox.DefaultExecTimeout),
		"builtin_tools": schema.SetAttribute{
			MarkdownDescription: "Tools that the image must have: " + toolNames() + ". Each sandbox is checked before its " +
				"lease is ready. If its image lacks a program or file of a tool, the lease fails and names it. Changed in place, " +
				"for later generations. Default: none.",
			Optional:    true,
			ElementType: types.StringType,
			Validators:  []validator.Set{given.NoNulls{}},
		},
		"sleep_mode": schema.StringAttribute{
			MarkdownDescription: "How a sandbox sleeps: `pause` keeps processes and memory; `stop` ends processes and frees " +
				"memory. Both keep `/workspace`. Cloudflare supports only `stop`, which keeps only `/data` without `keep_disk`. " +
				"Default: `pause`, on Cloudflare `stop`.",
			Optional: true,
			Computed: true,
		},
		"keep_disk": schema.BoolAttribute{
			MarkdownDescription: "Keeps the whole disk of a sandbox while it sleeps, for at most 30 days on Cloudflare. There " +
				"it needs the scheduling policy `durable_object` and another size than `basic`; without it a sleeping sandbox " +
				"keeps only `/data`. Changed in place, for later generations. On Docker a sleeping sandbox always keeps its " +
				"disk. Default: `false`.",
			Optional: true,
			Computed: true,
			Default:  booldefault.StaticBool(false),
		},
		"expiry_conditions": schema.SetAttribute{
			MarkdownDescription: "Conditions that end leases of this environment: dotted names such as `game.finished`. " +
				"At least one, at most 32. " +
				defaultConditions(),
			Optional:    true,
			Computed:    true,
			ElementType: types.StringType,
			Validators:  []validator.Set{setvalidator.SizeAtLeast(1), given.NoNulls{}},
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
		"id":    stable("The same as `name`."),
		"owner": stable("Owner, which may change the environment: an id issued to this object at its creation."),
		"ledger_id": stable("Id of the ledger that has the environment. If the provider reaches another ledger, the plan " +
			"fails and the state stays."),
		"instance": schema.StringAttribute{
			MarkdownDescription: "Backend instance of the environment, for Docker the engine's id. If another one answers, " +
				"the apply fails. To move the environment to another engine, end its leases and set this to that engine's id " +
				"(`docker info --format '{{.ID}}'`). Default: the one that answers at creation.",
			Optional:      true,
			Computed:      true,
			PlanModifiers: []planmodifier.String{stringplanmodifier.UseStateForUnknown()},
			Validators:    []validator.String{given.Text{}},
		},
		"status": stable("`open`, `ended` once a condition ended the environment, or `deleting` while a removal is " +
			"unfinished. The next apply replaces an environment that is `deleting`."),
		"ended_by": stable("Condition that ended the environment."),
		"ended_at": stable("Time of the end, RFC 3339 in UTC."),
		"estimated_monthly_cost_usd": schema.StringAttribute{
			MarkdownDescription: "Expected cost of a month of 30 days in US dollars, known at plan: `expected_usage` at the " +
				"prices of the reconciler or of `docker.price_book`, less what the plan includes. Null without " +
				"`expected_usage`, `0.00` without a price book. The data source `sandbox_cost` has the real usage.",
			Computed: true,
		},
		"estimated_monthly_cost_per_lease_usd": schema.StringAttribute{
			MarkdownDescription: "`estimated_monthly_cost_usd` per lease.",
			Computed:            true,
		},
		"estimated_monthly_platform_cost_usd": schema.StringAttribute{
			MarkdownDescription: "Expected bill of Cloudflare for requests, Durable Objects and rows written in such a month, " +
				"in US dollars. Not part of `estimated_monthly_cost_usd`, of reports or of budgets. Every command is one request " +
				"to the Worker and one to a Durable Object, and every alarm (each 5 minutes) one to the object, which has 128 MB " +
				"and counts as active while the sandbox is awake. " +
				fmt.Sprintf("[List prices](%s) of %s, less what the plan includes. Null on Docker, and without "+
					"`expected_usage`.",
					pricing.CloudflarePlatform().Source, pricing.CloudflarePlatform().AsOf),
			Computed: true,
		},
		"drift": schema.ListAttribute{
			MarkdownDescription: "Changes that others made to the deployment on Cloudflare: image, size, number of " +
				"instances, Worker. If there are any, the plan deploys the environment again.",
			Computed:    true,
			ElementType: types.StringType,
		},
	}
}

// nestedAttributes returns the attributes that hold objects or lists of objects.
func nestedAttributes() map[string]schema.Attribute {
	return map[string]schema.Attribute{
		"resources":   sizeAttribute(),
		"network":     networkAttribute(),
		"warm_pool":   poolAttribute(),
		"budget":      budgetAttribute(),
		"llm":         llmAttribute(),
		"companions":  companionsAttribute(),
		"mount":       mountAttribute(),
		"copy":        copyAttribute(),
		"archive":     archiveAttribute(),
		"state":       snapshotAttribute(),
		"confinement": confinementAttribute(),
		"workspace":   workspaceAttribute(),
		"post_start":  postStartAttribute(),
		"process":     processAttribute(),
		"expected_usage": schema.SingleNestedAttribute{
			Optional:            true,
			MarkdownDescription: "Expected usage, for the estimated cost. It limits nothing. Default: no estimate.",
			Attributes: map[string]schema.Attribute{
				"leases": schema.Int64Attribute{
					MarkdownDescription: "Number of agents with a lease, 1 to 1000000. Default: `1`.",
					Optional:            true,
					Computed:            true,
					Default:             int64default.StaticInt64(1),
					Validators:          []validator.Int64{int64validator.Between(1, 1_000_000)},
				},
				"hours_per_day": schema.Float64Attribute{
					MarkdownDescription: "Hours a day for which each sandbox is awake, 0 to 24. Default: `24`.",
					Optional:            true,
					Computed:            true,
					Default:             float64default.StaticFloat64(24),
					Validators:          []validator.Float64{hours{}},
				},
				"cpu_share_percent": schema.Int64Attribute{
					MarkdownDescription: "CPU usage of an awake sandbox, 0 to 100 per cent of its limit. Default: `100`.",
					Optional:            true,
					Computed:            true,
					Default:             int64default.StaticInt64(100),
					Validators:          []validator.Int64{int64validator.Between(0, 100)},
				},
				"commands_per_hour": schema.Int64Attribute{
					MarkdownDescription: "Commands an hour in each awake sandbox, 0 to 1000000. Only " +
						"`estimated_monthly_platform_cost_usd` depends on it. " +
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

func toolNames() string { return "`" + strings.Join(sandbox.BuiltinToolNames(), "`, `") + "`" }

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
