package containerimage

import (
	"context"

	"github.com/hashicorp/terraform-plugin-framework/diag"
	"github.com/hashicorp/terraform-plugin-framework/path"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema"
	"github.com/hashicorp/terraform-plugin-framework/schema/validator"
	"github.com/hashicorp/terraform-plugin-framework/types"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/image"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/image/registry"
	"github.com/sandbox-lease/terraform-provider-sandbox/provider/given"
)

// Source is source: an image that exists in a registry.
type Source struct {
	Reference types.String `tfsdk:"reference"`
	Platform  types.String `tfsdk:"platform"`
	Follow    types.Bool   `tfsdk:"follow"`
}

func sourceAttribute() schema.Attribute {
	return schema.SingleNestedAttribute{
		Optional: true,
		MarkdownDescription: "Image in a registry, pinned at plan to the digest of its tag. Without `push` the engine " +
			"pulls it. With `push` it is copied from registry to registry, without an engine. Conflicts with `build`. " +
			"Default: none.",
		Attributes: map[string]schema.Attribute{
			"reference": schema.StringAttribute{
				MarkdownDescription: "Reference of the image, such as `busybox:1.36` or `ghcr.io/acme/player@sha256:…`. " +
					"Changed in place.",
				Required:   true,
				Validators: []validator.String{check(image.CheckReference)},
			},
			"platform": schema.StringAttribute{
				MarkdownDescription: "Platform to pull, such as `linux/amd64`, if the image has several. Changed in place. " +
					"Default: all are pinned, and the engine runs its own.",
				Optional:   true,
				Validators: []validator.String{given.Text{}},
			},
			"follow": schema.BoolAttribute{
				MarkdownDescription: "Resolve the tag at every plan, and show a moved tag as a changed `digest`. Default: " +
					"`false`, the digest stays and plans do not ask the registry.",
				Optional: true,
			},
		},
	}
}

// known reports whether all settings that decide the digest are known.
func (s *Source) known() bool {
	return !s.Reference.IsUnknown() && !s.Platform.IsUnknown() && !s.Follow.IsUnknown()
}

// unknown reports whether the whole source may be unknown (spread.Plan).
func (s *Source) unknown() bool {
	return s.Reference.IsUnknown() && s.Platform.IsUnknown() && s.Follow.IsUnknown()
}

// stays reports whether the source keeps its earlier digest.
func (s *Source) stays(before *Source) bool {
	return before != nil && !s.Follow.ValueBool() && s.Reference.Equal(before.Reference) &&
		s.Platform.Equal(before.Platform)
}

// pinned returns the source's name with a digest.
func (s *Source) pinned(digest string) string {
	return image.Repository(s.Reference.ValueString()) + "@" + digest
}

// pin asks the registry for the digest of the source.
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
