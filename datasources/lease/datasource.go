// Package lease is the Terraform data source sandbox_lease.
package lease

import (
	"context"

	"github.com/hashicorp/terraform-plugin-framework-validators/stringvalidator"
	"github.com/hashicorp/terraform-plugin-framework/datasource"
	"github.com/hashicorp/terraform-plugin-framework/datasource/schema"
	"github.com/hashicorp/terraform-plugin-framework/path"
	"github.com/hashicorp/terraform-plugin-framework/schema/validator"

	"github.com/sandbox-lease/terraform-provider-sandbox/provider/configured"
	"github.com/sandbox-lease/terraform-provider-sandbox/provider/diagnose"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

var _ datasource.DataSourceWithConfigure = (*DataSource)(nil)

// NewDataSource returns the data source, not configured.
func NewDataSource() datasource.DataSource { return &DataSource{} }

// DataSource reads one lease.
type DataSource struct {
	configured.DataSource
}

// Metadata names the data source.
func (d *DataSource) Metadata(_ context.Context, req datasource.MetadataRequest, resp *datasource.MetadataResponse) {
	resp.TypeName = req.ProviderTypeName + "_lease"
}

// Schema describes the data source.
func (d *DataSource) Schema(_ context.Context, _ datasource.SchemaRequest, resp *datasource.SchemaResponse) {
	attributes := Attributes()
	agent := path.MatchRoot("agent_did")
	attributes["id"] = schema.StringAttribute{
		MarkdownDescription: "`<agent_did>::<environment_id>`. Either this, or `agent_did` and `environment_id`, must be given.",
		Optional:            true,
		Computed:            true,
		Validators:          []validator.String{stringvalidator.ExactlyOneOf(path.MatchRoot("id"), agent)},
	}
	attributes["agent_did"] = schema.StringAttribute{
		MarkdownDescription: "Agent that holds the lease, such as `did:plc:abc`. Required with `environment_id`.",
		Optional:            true,
		Computed:            true,
		Validators:          []validator.String{stringvalidator.AlsoRequires(path.MatchRoot("environment_id"))},
	}
	attributes["environment_id"] = schema.StringAttribute{
		MarkdownDescription: "Name of the environment. Required with `agent_did`.",
		Optional:            true,
		Computed:            true,
		Validators:          []validator.String{stringvalidator.AlsoRequires(agent)},
	}
	resp.Schema = schema.Schema{
		MarkdownDescription: "A lease in its current generation, ended ones included, with what moves as it is used: `expires_at`, `last_activity`, `phase` and `cost_usd`. " +
			"Its sandbox is looked at on the backend first, without waking it.",
		Attributes: attributes,
	}
}

// Read reads the lease.
func (d *DataSource) Read(ctx context.Context, req datasource.ReadRequest, resp *datasource.ReadResponse) {
	var m Model
	resp.Diagnostics.Append(req.Config.Get(ctx, &m)...)
	if resp.Diagnostics.HasError() {
		return
	}
	id := m.ID.ValueString()
	if m.ID.IsNull() {
		id = sandbox.LeaseID(m.AgentDID.ValueString(), m.EnvironmentID.ValueString())
	}
	svc, err := d.Provider.Open(ctx)
	var l sandbox.Lease
	if err == nil {
		l, err = svc.ObserveLease(ctx, id)
	}
	if err != nil {
		resp.Diagnostics.Append(diagnose.Failed("Reading Lease Failed", err, nil)...)
		return
	}
	m, diags := Flatten(ctx, l)
	resp.Diagnostics.Append(diags...)
	resp.Diagnostics.Append(resp.State.Set(ctx, &m)...)
}
