package containerimage

import (
	"context"
	"slices"

	"github.com/hashicorp/terraform-plugin-framework-timeouts/resource/timeouts"
	"github.com/hashicorp/terraform-plugin-framework/attr"
	"github.com/hashicorp/terraform-plugin-framework/diag"
	"github.com/hashicorp/terraform-plugin-framework/types"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/image"
	"github.com/sandbox-lease/terraform-provider-sandbox/provider/value"
)

// Model is the resource in configuration, plan and state.
type Model struct {
	Name      types.String   `tfsdk:"name"`
	Tags      types.Set      `tfsdk:"tags"`
	OnDestroy types.String   `tfsdk:"on_destroy"`
	Build     *Build         `tfsdk:"build"`
	Timeouts  timeouts.Value `tfsdk:"timeouts"`

	ID          types.String `tfsdk:"id"`
	ImageID     types.String `tfsdk:"image_id"`
	Reference   types.String `tfsdk:"reference"`
	ContextHash types.String `tfsdk:"context_hash"`
	Instance    types.String `tfsdk:"instance"`
}

// Build is the build block.
type Build struct {
	Context    types.String `tfsdk:"context"`
	Dockerfile types.String `tfsdk:"dockerfile"`
	Args       types.Map    `tfsdk:"args"`
	Target     types.String `tfsdk:"target"`
	Platform   types.String `tfsdk:"platform"`
	Labels     types.Map    `tfsdk:"labels"`
}

// known reports whether everything that the image is built from is known.
func (b *Build) known() bool {
	values := []attr.Value{b.Context, b.Dockerfile, b.Args, b.Target, b.Platform, b.Labels}
	for _, m := range []types.Map{b.Args, b.Labels} {
		for _, v := range m.Elements() {
			values = append(values, v)
		}
	}
	return !slices.ContainsFunc(values, attr.Value.IsUnknown)
}

// expand returns how the image is built. Everything must be known.
func (b *Build) expand(ctx context.Context) (image.Spec, diag.Diagnostics) {
	spec := image.Spec{
		Context:    b.Context.ValueString(),
		Dockerfile: b.Dockerfile.ValueString(),
		Target:     b.Target.ValueString(),
		Platform:   b.Platform.ValueString(),
	}
	var diags diag.Diagnostics
	if !b.Args.IsNull() {
		diags.Append(b.Args.ElementsAs(ctx, &spec.Args, false)...)
	}
	if !b.Labels.IsNull() {
		diags.Append(b.Labels.ElementsAs(ctx, &spec.Labels, false)...)
	}
	return spec, diags
}

// tags returns the tags, which must be known.
func (m *Model) tags(ctx context.Context) ([]string, diag.Diagnostics) {
	var tags []string
	if m.Tags.IsNull() {
		return nil, nil
	}
	diags := m.Tags.ElementsAs(ctx, &tags, false)
	slices.Sort(tags)
	return tags, diags
}

func (m *Model) setTags(ctx context.Context, tags []string) diag.Diagnostics {
	set, diags := types.SetValueFrom(ctx, types.StringType, slices.Concat([]string{}, tags))
	m.Tags = set
	return diags
}

// setImage writes what the engine has into the model.
func (m *Model) setImage(id, contextHash, instance string) {
	m.ID = m.Name
	m.ImageID = types.StringValue(id)
	m.Reference = types.StringValue(id)
	m.ContextHash = value.String(contextHash)
	m.Instance = types.StringValue(instance)
}
