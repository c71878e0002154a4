package functions

import (
	"context"

	"github.com/distribution/reference"
	"github.com/hashicorp/terraform-plugin-framework/attr"
	"github.com/hashicorp/terraform-plugin-framework/function"
	"github.com/hashicorp/terraform-plugin-framework/types"
)

// parseImageReference splits an image reference into its parts.
type parseImageReference struct{}

// imageParts are the parts of a reference. Absent parts are null.
type imageParts struct {
	Registry   string  `tfsdk:"registry"`
	Repository string  `tfsdk:"repository"`
	Tag        *string `tfsdk:"tag"`
	Digest     *string `tfsdk:"digest"`
	Name       string  `tfsdk:"name"`
}

// Metadata implements function.Function.
func (parseImageReference) Metadata(_ context.Context, _ function.MetadataRequest, resp *function.MetadataResponse) {
	resp.Name = "parse_image_reference"
}

// Definition implements function.Function.
func (parseImageReference) Definition(_ context.Context, _ function.DefinitionRequest,
	resp *function.DefinitionResponse) {
	resp.Definition = function.Definition{
		Summary: "Parts of an image reference",
		MarkdownDescription: "Parses a container image reference as Docker does: the default registry is `docker.io`, " +
			"and its default namespace is `library`. Returns an object of `registry`, `repository` (within the registry), " +
			"`tag` and `digest` (null if absent), and `name`, which is registry and repository.",
		Parameters: []function.Parameter{
			function.StringParameter{
				Name:                "reference",
				MarkdownDescription: "The reference, such as `busybox:1.36` or `ghcr.io/acme/player@sha256:…`.",
			},
		},
		Return: function.ObjectReturn{AttributeTypes: map[string]attr.Type{
			"registry":   types.StringType,
			"repository": types.StringType,
			"tag":        types.StringType,
			"digest":     types.StringType,
			"name":       types.StringType,
		}},
	}
}

// Run implements function.Function.
func (parseImageReference) Run(ctx context.Context, req function.RunRequest, resp *function.RunResponse) {
	var text string
	if resp.Error = req.Arguments.Get(ctx, &text); resp.Error != nil {
		return
	}
	named, err := reference.ParseNormalizedNamed(text)
	if err != nil {
		resp.Error = argument(0,
			"%q is not a reference of a container image such as busybox:1.36 or ghcr.io/acme/player@sha256:…: %s", text, err)
		return
	}
	parts := imageParts{Registry: reference.Domain(named), Repository: reference.Path(named), Name: named.Name()}
	if tagged, ok := named.(reference.Tagged); ok {
		tag := tagged.Tag()
		parts.Tag = &tag
	}
	if pinned, ok := named.(reference.Digested); ok {
		digest := pinned.Digest().String()
		parts.Digest = &digest
	}
	resp.Error = resp.Result.Set(ctx, parts)
}
