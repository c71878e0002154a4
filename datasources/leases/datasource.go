// Package leases is the Terraform data source sandbox_leases.
package leases

import (
	"context"

	"github.com/hashicorp/terraform-plugin-framework-validators/stringvalidator"
	"github.com/hashicorp/terraform-plugin-framework/datasource"
	"github.com/hashicorp/terraform-plugin-framework/datasource/schema"
	"github.com/hashicorp/terraform-plugin-framework/schema/validator"
	"github.com/hashicorp/terraform-plugin-framework/types"

	"github.com/sandbox-lease/terraform-provider-sandbox/datasources/lease"
	"github.com/sandbox-lease/terraform-provider-sandbox/provider/configured"
	"github.com/sandbox-lease/terraform-provider-sandbox/provider/diagnose"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

var _ datasource.DataSourceWithConfigure = (*DataSource)(nil)

// NewDataSource returns the data source, not configured.
func NewDataSource() datasource.DataSource { return &DataSource{} }

// DataSource reads the leases that a filter selects.
type DataSource struct {
	configured.DataSource
}

// Model is the data source in configuration and state.
type Model struct {
	EnvironmentID types.String  `tfsdk:"environment_id"`
	AgentDID      types.String  `tfsdk:"agent_did"`
	Status        types.String  `tfsdk:"status"`
	Leases        []lease.Model `tfsdk:"leases"`
}

// Metadata names the data source.
func (d *DataSource) Metadata(_ context.Context, req datasource.MetadataRequest, resp *datasource.MetadataResponse) {
	resp.TypeName = req.ProviderTypeName + "_leases"
}

// Schema describes the data source.
func (d *DataSource) Schema(_ context.Context, _ datasource.SchemaRequest, resp *datasource.SchemaResponse) {
	resp.Schema = schema.Schema{
		MarkdownDescription: "The leases of a ledger, each in its current generation, as the ledger has them. Without filters all are read, ended ones included.",
		Attributes: map[string]schema.Attribute{
			"environment_id": schema.StringAttribute{MarkdownDescription: "Only leases of this environment. Default: of all.", Optional: true},
			"agent_did":      schema.StringAttribute{MarkdownDescription: "Only leases of this agent. Default: of all.", Optional: true},
			"status": schema.StringAttribute{
				MarkdownDescription: "Only leases with this status: `pending`, `active`, `expired` or `destroyed`. Default: with any.",
				Optional:            true,
				Validators: []validator.String{stringvalidator.OneOf(
					string(sandbox.LeasePending), string(sandbox.LeaseActive), string(sandbox.LeaseExpired), string(sandbox.LeaseDestroyed))},
			},
			"leases": schema.ListNestedAttribute{
				MarkdownDescription: "The leases, by id.",
				Computed:            true,
				NestedObject:        schema.NestedAttributeObject{Attributes: lease.Attributes()},
			},
		},
	}
}

// Read reads the leases.
func (d *DataSource) Read(ctx context.Context, req datasource.ReadRequest, resp *datasource.ReadResponse) {
	var m Model
	resp.Diagnostics.Append(req.Config.Get(ctx, &m)...)
	if resp.Diagnostics.HasError() {
		return
	}
	found, err := d.list(ctx, sandbox.LeaseFilter{
		EnvironmentID: m.EnvironmentID.ValueString(), AgentDID: m.AgentDID.ValueString(), Status: sandbox.LeaseStatus(m.Status.ValueString()),
	})
	if err != nil {
		resp.Diagnostics.Append(diagnose.Failed("Reading Leases Failed", err, nil)...)
		return
	}
	m.Leases = make([]lease.Model, len(found))
	for i, l := range found {
		flat, diags := lease.Flatten(ctx, l)
		resp.Diagnostics.Append(diags...)
		m.Leases[i] = flat
	}
	resp.Diagnostics.Append(resp.State.Set(ctx, &m)...)
}

// list reads all pages.
func (d *DataSource) list(ctx context.Context, f sandbox.LeaseFilter) ([]sandbox.Lease, error) {
	svc, err := d.Provider.Open(ctx)
	if err != nil {
		return nil, err
	}
	var all []sandbox.Lease
	for f.Limit = sandbox.MaxPage; ; {
		page, err := svc.ListLeases(ctx, f)
		if err != nil {
			return nil, err
		}
		all = append(all, page...)
		if len(page) < f.Limit {
			return all, nil
		}
		f.After = page[len(page)-1].ID
	}
}
