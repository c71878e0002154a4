// Package environments is the Terraform data source sandbox_environments.
package environments

import (
	"context"

	"github.com/hashicorp/terraform-plugin-framework-validators/stringvalidator"
	"github.com/hashicorp/terraform-plugin-framework/datasource"
	"github.com/hashicorp/terraform-plugin-framework/datasource/schema"
	"github.com/hashicorp/terraform-plugin-framework/schema/validator"
	"github.com/hashicorp/terraform-plugin-framework/types"

	"github.com/sandbox-lease/terraform-provider-sandbox/datasources/environment"
	"github.com/sandbox-lease/terraform-provider-sandbox/provider/configured"
	"github.com/sandbox-lease/terraform-provider-sandbox/provider/diagnose"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

var _ datasource.DataSourceWithConfigure = (*DataSource)(nil)

// NewDataSource returns the data source, not configured.
func NewDataSource() datasource.DataSource { return &DataSource{} }

// DataSource reads the environments that a filter selects.
type DataSource struct {
	configured.DataSource
}

// Model is the data source in configuration and state.
type Model struct {
	Type         types.String        `tfsdk:"type"`
	Status       types.String        `tfsdk:"status"`
	Environments []environment.Model `tfsdk:"environments"`
}

// Metadata names the data source.
func (d *DataSource) Metadata(_ context.Context, req datasource.MetadataRequest, resp *datasource.MetadataResponse) {
	resp.TypeName = req.ProviderTypeName + "_environments"
}

// Schema describes the data source.
func (d *DataSource) Schema(_ context.Context, _ datasource.SchemaRequest, resp *datasource.SchemaResponse) {
	resp.Schema = schema.Schema{
		MarkdownDescription: "The environments of a ledger, whoever made them. Without filters all are read that are not destroyed.",
		Attributes: map[string]schema.Attribute{
			"type": schema.StringAttribute{
				MarkdownDescription: "Only environments of this type: `rpg`, `catan`, `coding` or `custom`. Default: of all.",
				Optional:            true,
				Validators: []validator.String{stringvalidator.OneOf(
					string(sandbox.TypeRPG), string(sandbox.TypeCatan), string(sandbox.TypeCoding), string(sandbox.TypeCustom))},
			},
			"status": schema.StringAttribute{
				MarkdownDescription: "Only environments with this status: `open`, `ended` or `deleting`. Default: all three.",
				Optional:            true,
				Validators: []validator.String{stringvalidator.OneOf(
					string(sandbox.EnvironmentOpen), string(sandbox.EnvironmentClosed), string(sandbox.EnvironmentDeleting))},
			},
			"environments": schema.ListNestedAttribute{
				MarkdownDescription: "The environments, by name.",
				Computed:            true,
				NestedObject:        schema.NestedAttributeObject{Attributes: environment.Attributes()},
			},
		},
	}
}

// Read reads the environments.
func (d *DataSource) Read(ctx context.Context, req datasource.ReadRequest, resp *datasource.ReadResponse) {
	var m Model
	resp.Diagnostics.Append(req.Config.Get(ctx, &m)...)
	if resp.Diagnostics.HasError() {
		return
	}
	svc, err := d.Provider.Open(ctx)
	var all []sandbox.Environment
	if err == nil {
		all, err = svc.ListEnvironments(ctx)
	}
	if err != nil {
		resp.Diagnostics.Append(diagnose.Failed("Reading Environments Failed", err, nil)...)
		return
	}
	m.Environments = []environment.Model{}
	for _, env := range all {
		if !m.selects(env) {
			continue
		}
		flat, diags := environment.Flatten(ctx, env)
		resp.Diagnostics.Append(diags...)
		m.Environments = append(m.Environments, flat)
	}
	resp.Diagnostics.Append(resp.State.Set(ctx, &m)...)
}

func (m *Model) selects(env sandbox.Environment) bool {
	return (m.Type.IsNull() || m.Type.ValueString() == string(env.Type)) &&
		(m.Status.IsNull() || m.Status.ValueString() == string(env.Status))
}
