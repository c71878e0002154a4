package environment

import (
	"github.com/hashicorp/terraform-plugin-framework-validators/setvalidator"
	"github.com/hashicorp/terraform-plugin-framework-validators/stringvalidator"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema"
	"github.com/hashicorp/terraform-plugin-framework/schema/validator"
	"github.com/hashicorp/terraform-plugin-framework/types"

	"github.com/sandbox-lease/terraform-provider-sandbox/provider/given"
)

// variableAttributes returns the attributes for the environment variables of sandboxes.
func variableAttributes() map[string]schema.Attribute {
	names := []validator.Set{given.NoNulls{}, setvalidator.ValueStringsAre(stringvalidator.LengthAtLeast(1))}
	return map[string]schema.Attribute{
		"env": schema.MapAttribute{
			MarkdownDescription: "Environment variables of every process in the sandboxes. Not for secrets: Terraform's " +
				"state and the ledger contain them. Changed in place; running sandboxes keep theirs. Default: none.",
			Optional:    true,
			ElementType: types.StringType,
			Validators:  []validator.Map{given.NoNulls{}},
		},
		"env_passthrough": schema.SetAttribute{
			MarkdownDescription: "Names of variables that sandboxes copy from the process of Terraform or, with a " +
				"reconciler, from the reconciler, which needs `--env-allow` for each. `*` stands for all that the reconciler " +
				"allows by name and that are set. `env` overrides them. Not for secrets: the engine shows them. Changed in " +
				"place; running sandboxes keep theirs. Default: none.",
			Optional:    true,
			ElementType: types.StringType,
			Validators:  names,
		},
		"env_blocked": schema.SetAttribute{
			MarkdownDescription: "Names of variables, in any case, that sandboxes and commands may not have, in addition to " +
				"those that are always blocked, such as `DATABASE_URL`. Changed in place, for new requests. Default: none.",
			Optional:    true,
			ElementType: types.StringType,
			Validators:  names,
		},
	}
}
