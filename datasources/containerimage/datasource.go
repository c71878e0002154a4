// Package containerimage is the Terraform data source sandbox_container_image.
package containerimage

import (
	"context"

	"github.com/hashicorp/terraform-plugin-framework-validators/stringvalidator"
	"github.com/hashicorp/terraform-plugin-framework/datasource"
	"github.com/hashicorp/terraform-plugin-framework/datasource/schema"
	"github.com/hashicorp/terraform-plugin-framework/schema/validator"
	"github.com/hashicorp/terraform-plugin-framework/types"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/image"
	"github.com/sandbox-lease/terraform-provider-sandbox/provider/configured"
	"github.com/sandbox-lease/terraform-provider-sandbox/provider/diagnose"
	"github.com/sandbox-lease/terraform-provider-sandbox/provider/value"
)

var _ datasource.DataSourceWithConfigure = (*DataSource)(nil)

// NewDataSource returns the data source, not configured.
func NewDataSource() datasource.DataSource { return &DataSource{} }

// DataSource looks at one image on the Docker engine.
type DataSource struct {
	configured.DataSource
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

// Metadata names the data source.
func (d *DataSource) Metadata(_ context.Context, req datasource.MetadataRequest, resp *datasource.MetadataResponse) {
	resp.TypeName = req.ProviderTypeName + "_container_image"
}

// Schema describes the data source.
func (d *DataSource) Schema(_ context.Context, _ datasource.SchemaRequest, resp *datasource.SchemaResponse) {
	text := func(description string) schema.Attribute {
		return schema.StringAttribute{MarkdownDescription: description, Computed: true}
	}
	resp.Schema = schema.Schema{
		MarkdownDescription: "An image that is on the Docker engine, whoever built or pulled it, to pin an environment to what a tag points to now. Nothing is pulled: an image that the engine does not have is an error.",
		Attributes: map[string]schema.Attribute{
			"name": schema.StringAttribute{
				MarkdownDescription: "The image as Docker finds it: a name with or without a tag, such as `busybox:1.36`, a digest or an id.",
				Required:            true,
				Validators:          []validator.String{stringvalidator.LengthAtLeast(1)},
			},
			"image_id":  text("Id of the image, `sha256:…`."),
			"reference": text("What an environment's `image` takes to run exactly this image on this engine, whatever becomes of its tags."),
			"references": schema.SetAttribute{
				MarkdownDescription: "All names with tags that point to the image.", Computed: true, ElementType: types.StringType,
			},
			"context_hash": text("What a `sandbox_container_image` built it from. Null when none did."),
			"instance":     text("Id of the Docker engine."),
		},
	}
}

// Read looks at the image.
func (d *DataSource) Read(ctx context.Context, req datasource.ReadRequest, resp *datasource.ReadResponse) {
	var m Model
	resp.Diagnostics.Append(req.Config.Get(ctx, &m)...)
	if resp.Diagnostics.HasError() {
		return
	}
	var img image.Image
	instance, err := d.Provider.Images.Instance(ctx)
	if err == nil {
		img, err = d.Provider.Images.Inspect(ctx, m.Name.ValueString())
	}
	if err != nil {
		resp.Diagnostics.Append(diagnose.Failed("Reading Image Failed", err, nil)...)
		return
	}
	references, diags := types.SetValueFrom(ctx, types.StringType, append([]string{}, img.References...))
	resp.Diagnostics.Append(diags...)
	m.ImageID = types.StringValue(img.ID)
	m.Reference = types.StringValue(img.ID)
	m.References = references
	m.ContextHash = value.String(img.ContextHash)
	m.Instance = types.StringValue(instance)
	resp.Diagnostics.Append(resp.State.Set(ctx, &m)...)
}
