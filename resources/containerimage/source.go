package containerimage

import (
	"context"

	"github.com/hashicorp/terraform-plugin-framework-validators/objectvalidator"
	"github.com/hashicorp/terraform-plugin-framework-validators/stringvalidator"
	"github.com/hashicorp/terraform-plugin-framework/diag"
	"github.com/hashicorp/terraform-plugin-framework/path"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema"
	"github.com/hashicorp/terraform-plugin-framework/schema/validator"
	"github.com/hashicorp/terraform-plugin-framework/types"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/image"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/image/registry"
)

// Source is the source block: an image that exists in a registry.
type Source struct {
	Reference types.String `tfsdk:"reference"`
	Platform  types.String `tfsdk:"platform"`
	Follow    types.Bool   `tfsdk:"follow"`
}

func sourceBlock() schema.Block {
	return schema.SingleNestedBlock{
		MarkdownDescription: "The image of a registry, pinned at plan to the digest that its tag has then. Without `push` the engine pulls it; with `push` it is copied from registry to registry, and no engine is asked.",
		Validators:          []validator.Object{objectvalidator.AlsoRequires(path.MatchRelative().AtName("reference"))},
		Attributes: map[string]schema.Attribute{
			"reference": schema.StringAttribute{
				MarkdownDescription: "What to pull, such as `busybox:1.36` or `ghcr.io/acme/player@sha256:…`. Required here. Changed in place.",
				Optional:            true,
				Validators:          []validator.String{check(image.CheckReference)},
			},
			"platform": schema.StringAttribute{
				MarkdownDescription: "Platform to take, such as `linux/amd64`, where the reference stands for several. Changed in place. Default: all are pinned together, and the engine runs its own.",
				Optional:            true,
				Validators:          []validator.String{stringvalidator.LengthAtLeast(1)},
			},
			"follow": schema.BoolAttribute{
				MarkdownDescription: "Whether each plan asks the registry what the tag points to now, and shows a tag that moved as a changed `digest`. Default: `false`, the digest stays and the registry is not asked.",
				Optional:            true,
			},
		},
	}
}

// known reports whether everything that the digest depends on is known.
func (s *Source) known() bool {
	return !s.Reference.IsUnknown() && !s.Platform.IsUnknown() && !s.Follow.IsUnknown()
}

// stays reports whether what the source was pinned to before holds on.
func (s *Source) stays(before *Source) bool {
	return before != nil && !s.Follow.ValueBool() && s.Reference.Equal(before.Reference) && s.Platform.Equal(before.Platform)
}

// pinned returns the source's name with a digest.
func (s *Source) pinned(digest string) string {
	return image.Repository(s.Reference.ValueString()) + "@" + digest
}

// pin returns the digest that the source stands for.
func (s *Source) pin(ctx context.Context, c *registry.Client) (types.String, diag.Diagnostics) {
	ref := s.Reference.ValueString()
	if digest := image.DigestOf(ref); digest != "" && s.Platform.IsNull() {
		return types.StringValue(digest), nil
	}
	digest, err := c.Digest(ctx, ref, s.Platform.ValueString())
	if err != nil {
		return types.StringUnknown(), diag.Diagnostics{diag.NewAttributeErrorDiagnostic(
			path.Root("source").AtName("reference"), "Resolving Image Source Failed", err.Error()+".")}
	}
	return types.StringValue(digest), nil
}
