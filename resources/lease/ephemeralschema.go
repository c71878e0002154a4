package lease

import (
	"context"

	"github.com/hashicorp/terraform-plugin-framework-timeouts/ephemeral/timeouts"
	"github.com/hashicorp/terraform-plugin-framework-validators/mapvalidator"
	"github.com/hashicorp/terraform-plugin-framework-validators/setvalidator"
	"github.com/hashicorp/terraform-plugin-framework/ephemeral"
	"github.com/hashicorp/terraform-plugin-framework/ephemeral/schema"
	"github.com/hashicorp/terraform-plugin-framework/schema/validator"
	"github.com/hashicorp/terraform-plugin-framework/types"

	"github.com/sandbox-lease/terraform-provider-sandbox/provider/duration"
	"github.com/sandbox-lease/terraform-provider-sandbox/provider/given"
	"github.com/sandbox-lease/terraform-provider-sandbox/provider/timeout"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// Schema describes the ephemeral resource.
func (e *Ephemeral) Schema(ctx context.Context, _ ephemeral.SchemaRequest, resp *ephemeral.SchemaResponse) {
	resp.Schema = schema.Schema{
		MarkdownDescription: "A lease that is active while Terraform runs, for tests and pipelines. Opening it acquires " +
			"the lease and waits until its sandbox accepts commands. Terraform renews it meanwhile. Closing it releases the " +
			"generation that was opened, and waits until the sandbox is gone. Nothing is stored in plan or state. Needs " +
			"Terraform 1.10 or OpenTofu 1.11.\n\n" +
			"**Terraform opens it at plan too**, and again at apply as the next generation. Each opening starts a sandbox " +
			"and costs money. Terraform opens it at plan unless its configuration depends on a value that is unknown before " +
			"the apply, such as the `id` of a new `sandbox_environment`. So refer to the environment by `id`, not by " +
			"`name`.\n\n" +
			"If an environment has ended or its budget is spent, opening fails, and so does the plan that would reopen it. " +
			"So apply the raised `epoch` or budget alone first, with `-target`.\n\n" +
			"If another owner holds the lease, such as a `sandbox_lease` or a second run of the pipeline, opening fails. A " +
			"killed Terraform closes nothing, and the lease ends by its `ttl`: set a short one.",
		Attributes: ephemeralAttributes(),
		Blocks:     map[string]schema.Block{"timeouts": timeoutsBlock(ctx)},
	}
}

// timeoutsBlock is timeouts.Block with its own description, for which that function has no option.
func timeoutsBlock(ctx context.Context) schema.Block {
	block := timeouts.BlockWithOpts(ctx,
		timeouts.Opts{OpenDescription: "Time limit until the sandbox accepts commands. Default: `5m`. More than `0s`."})
	if nested, ok := block.(schema.SingleNestedBlock); ok {
		nested.MarkdownDescription = "Time limit for opening, such as `90s` or `5m`. Closing has `5m`."
		if open, ok := nested.Attributes["open"].(schema.StringAttribute); ok {
			open.Validators = append(open.Validators, timeout.Positive{})
			nested.Attributes["open"] = open
		}
		return nested
	}
	return block
}

func ephemeralAttributes() map[string]schema.Attribute {
	text := func(description string) schema.Attribute {
		return schema.StringAttribute{MarkdownDescription: description, Computed: true}
	}
	span := func(description string) schema.Attribute {
		return schema.StringAttribute{
			MarkdownDescription: description + " A duration such as `90s`, `5m` or `24h`. Default: that of the environment.",
			Optional:            true,
			CustomType:          duration.Type{},
		}
	}
	return map[string]schema.Attribute{
		"agent_did": schema.StringAttribute{
			MarkdownDescription: "Decentralized identifier of the agent, such as `did:plc:abc`.",
			Required:            true,
		},
		"environment_id": schema.StringAttribute{
			MarkdownDescription: "Name of the environment. Refer to the `id` of a `sandbox_environment`.",
			Required:            true,
		},
		"ttl": span("Time after the last activity at which the lease ends. At least `1s`. Terraform renews the lease " +
			"after half of it."),
		"sleep_after":  span("Idle time after which the sandbox sleeps; `0s` turns sleep off. Needs a running reconciler."),
		"max_lifetime": span("Time after the start at which the lease ends, however often it is renewed. `1s` to `8760h`."),
		"expiry_conditions": schema.SetAttribute{
			MarkdownDescription: "Conditions that end this lease, such as `task.complete`. At least one, at most 32. " +
				"Default: those of the environment.",
			Optional:    true,
			ElementType: types.StringType,
			Validators:  []validator.Set{setvalidator.SizeAtLeast(1), given.NoNulls{}},
		},
		"labels": schema.MapAttribute{
			MarkdownDescription: "Labels of this lease, in addition to those of the environment, whose values they cannot " +
				"change. At most 32, without commas. Default: none.",
			Optional:    true,
			ElementType: types.StringType,
			Validators:  []validator.Map{mapvalidator.SizeAtMost(sandbox.MaxLabels), given.NoNulls{}},
		},
		"id":         text("`<agent_did>::<environment_id>`."),
		"ledger_id":  text("Id of the ledger that has the lease."),
		"sandbox_id": text("Id of the sandbox. Never reused."),
		"generation": schema.Int64Attribute{
			MarkdownDescription: "Generation: counts the sandboxes of the lease, from 1.",
			Computed:            true,
		},
		"image":     text("Image of the sandbox."),
		"leased_at": text("Start of this generation, RFC 3339 in UTC."),
	}
}
