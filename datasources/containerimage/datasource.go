// Package containerimage is the Terraform data source sandbox_container_image.
package containerimage

import (
	"context"

	"github.com/hashicorp/terraform-plugin-framework-validators/stringvalidator"
	"github.com/hashicorp/terraform-plugin-framework/datasource"
	"github.com/hashicorp/terraform-plugin-framework/datasource/schema"
	"github.com/hashicorp/terraform-plugin-framework/diag"
	"github.com/hashicorp/terraform-plugin-framework/schema/validator"
	"github.com/hashicorp/terraform-plugin-framework/types"

	"github.com/sandbox-lease/terraform-provider-sandbox/provider/configured"
	"github.com/sandbox-lease/terraform-provider-sandbox/provider/value"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// NewDataSource returns an unconfigured data source for one image on the Docker engine.
func NewDataSource() datasource.DataSource {
	return configured.NewDataSource(configured.DataSource[Model]{
		Name: "container_image", Title: "Image", Schema: describe, Read: read,
	})
}

// Model is the data source in configuration and state.
type Model struct {
	Name        types.String `tfsdk:"name"`
	ImageID     types.String `tfsdk:"image_id"`
	Reference   types.String `tfsdk:"reference"`
	References  types.Set    `tfsdk:"references"`
	ContextHash types.String `tfsdk:"context_hash"`
	Instance    types.String `tfsdk:"instance"`
}

func describe() schema.Schema {
	text := func(description string) schema.Attribute {
		return schema.StringAttribute{MarkdownDescription: description, Computed: true}
	}
	return schema.Schema{
		MarkdownDescription: "An image on the Docker engine, however it got there. Use it to pin an environment to " +
			"what a tag points to now. The data source does not pull: if the engine does not have the image, it fails.",
		Attributes: map[string]schema.Attribute{
			"name": schema.StringAttribute{
				MarkdownDescription: "The image as Docker names it: a name with or without a tag, such as `busybox:1.36`, " +
					"a digest or an id.",
				Required:   true,
				Validators: []validator.String{stringvalidator.LengthAtLeast(1)},
			},
			"image_id": text("Id of the image, `sha256:…`."),
			"reference": text("Value for an environment's `image` to run exactly this image on this engine, even " +
				"if its tags move."),
			"references": schema.SetAttribute{
				MarkdownDescription: "All `name:tag` references of the image.", Computed: true, ElementType: types.StringType,
			},
			"context_hash": text("Context hash of the `sandbox_container_image` that built it. Null if none did."),
			"instance":     text("Id of the Docker engine."),
		},
	}
}

func read(ctx context.Context, p *configured.Provider, m *Model) (diag.Diagnostics, error) {
	instance, err := p.Images.Instance(ctx)
	if err != nil {
		return nil, err
	}
	img, err := p.Images.Inspect(ctx, m.Name.ValueString())
	if sandbox.CodeOf(err) == sandbox.NotFound {
		return nil, sandbox.Errorf(sandbox.NotFound, "Docker engine %s has no image %s: check the name, or pull or build it "+
			"first", instance, m.Name.ValueString())
	}
	if err != nil {
		return nil, err
	}
	references, diags := types.SetValueFrom(ctx, types.StringType, append([]string{}, img.References...))
	m.ImageID = types.StringValue(img.ID)
	m.Reference = types.StringValue(img.ID)
	m.References = references
	m.ContextHash = value.String(img.ContextHash)
	m.Instance = types.StringValue(instance)
	return diags, nil
}
