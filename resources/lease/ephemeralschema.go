package lease

import (
	"context"

	"github.com/hashicorp/terraform-plugin-framework-timeouts/ephemeral/timeouts"
	"github.com/hashicorp/terraform-plugin-framework-validators/setvalidator"
	"github.com/hashicorp/terraform-plugin-framework/ephemeral"
	"github.com/hashicorp/terraform-plugin-framework/ephemeral/schema"
	"github.com/hashicorp/terraform-plugin-framework/schema/validator"
	"github.com/hashicorp/terraform-plugin-framework/types"

	"github.com/sandbox-lease/terraform-provider-sandbox/provider/duration"
)

// Schema describes the ephemeral resource.
func (e *Ephemeral) Schema(ctx context.Context, _ ephemeral.SchemaRequest, resp *ephemeral.SchemaResponse) {
	resp.Schema = schema.Schema{
		MarkdownDescription: "A lease for as long as Terraform runs, for test runs and pipelines: opening it acquires the lease and waits until its sandbox takes commands, " +
			"Terraform renews it while it works, and closing it releases exactly what was opened, generation and owner, and waits until the sandbox is gone. Nothing of it gets into plan or state. " +
			"It needs Terraform 1.10 or OpenTofu 1.11.\n\n" +
			"**It opens at plan too**, and again at apply as the next generation: each time there is a sandbox of its own, which costs what it costs. " +
			"It opens at plan unless something in its configuration is not known before the apply, such as the `id` of a `sandbox_environment` that is yet to be made; refer to the environment by `id`, not by `name`.\n\n" +
			"A lease that another owner holds is an error, that of a `sandbox_lease` or of a second run of the same pipeline included. " +
			"A Terraform that is killed closes nothing: the lease then ends by its `ttl`, so give it a short one.",
		Attributes: ephemeralAttributes(),
		Blocks:     map[string]schema.Block{"timeouts": timeoutsBlock(ctx)},
	}
}

// timeoutsBlock is timeouts.Block with a description of its own, which that one has no option for.
func timeoutsBlock(ctx context.Context) schema.Block {
	block := timeouts.BlockWithOpts(ctx, timeouts.Opts{OpenDescription: "How long to wait until the sandbox takes commands. Default: `5m`."})
	if nested, ok := block.(schema.SingleNestedBlock); ok {
		nested.MarkdownDescription = "How long opening may take, as a duration such as `90s` or `5m`. Closing may take `5m`."
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
		"agent_did":      schema.StringAttribute{MarkdownDescription: "Decentralized identifier of the agent, such as `did:plc:abc`.", Required: true},
		"environment_id": schema.StringAttribute{MarkdownDescription: "Name of the environment; best the `id` of a `sandbox_environment`.", Required: true},
		"ttl":            span("The lease ends this long after its last activity. At least `1s`. Terraform renews it when half of that is over."),
		"sleep_after":    span("The sandbox sleeps after it was not used for this long; `0s` turns that off. It needs a running reconciler."),
		"max_lifetime":   span("The lease ends this long after it began, however often it is renewed. `1s` to `8760h`."),
		"expiry_conditions": schema.SetAttribute{
			MarkdownDescription: "Conditions that end this lease, such as `task.complete`. Default: those of the environment.",
			Optional:            true,
			ElementType:         types.StringType,
			Validators:          []validator.Set{setvalidator.SizeAtLeast(1)},
		},
		"id":         text("`<agent_did>::<environment_id>`."),
		"ledger_id":  text("Ledger that the lease is kept in."),
		"sandbox_id": text("Id of the sandbox, never used again."),
		"generation": schema.Int64Attribute{MarkdownDescription: "Counts the incarnations of the lease, from 1.", Computed: true},
		"image":      text("Image that the sandbox runs."),
		"leased_at":  text("When this generation began, RFC 3339 in UTC."),
	}
}
