package environment

import (
	"github.com/hashicorp/terraform-plugin-framework-validators/setvalidator"
	"github.com/hashicorp/terraform-plugin-framework-validators/stringvalidator"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema"
	"github.com/hashicorp/terraform-plugin-framework/schema/validator"
	"github.com/hashicorp/terraform-plugin-framework/types"
)

// variableAttributes say which environment variables sandboxes have.
func variableAttributes() map[string]schema.Attribute {
	names := []validator.Set{setvalidator.ValueStringsAre(stringvalidator.LengthAtLeast(1))}
	return map[string]schema.Attribute{
		"env": schema.MapAttribute{
			MarkdownDescription: "Environment variables of every process in the sandboxes. Not for secrets: they are kept in Terraform's state and in the ledger. " +
				"Changed in place; sandboxes that already run keep theirs. Default: none.",
			Optional:    true,
			ElementType: types.StringType,
		},
		"env_passthrough": schema.SetAttribute{
			MarkdownDescription: "Names of variables that sandboxes get with the value that they have where the service runs, when a sandbox is made; `env` wins over them. " +
				"That is the process of Terraform, or a reconciler that was started with `--env-allow` for each. Not for secrets: they show in the engine. " +
				"Changed in place; sandboxes that already run keep theirs. Default: none.",
			Optional:    true,
			ElementType: types.StringType,
			Validators:  names,
		},
		"env_blocked": schema.SetAttribute{
			MarkdownDescription: "Names of variables, in whatever case, that no sandbox and no command may be given, beside those that are blocked everywhere, such as `DATABASE_URL`. " +
				"Changed in place, for what is asked for from then on. Default: none.",
			Optional:    true,
			ElementType: types.StringType,
			Validators:  names,
		},
	}
}
