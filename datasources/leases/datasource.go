// Package leases is the Terraform data source sandbox_leases.
package leases

import (
	"context"

	"github.com/hashicorp/terraform-plugin-framework-validators/stringvalidator"
	"github.com/hashicorp/terraform-plugin-framework/datasource"
	"github.com/hashicorp/terraform-plugin-framework/datasource/schema"
	"github.com/hashicorp/terraform-plugin-framework/diag"
	"github.com/hashicorp/terraform-plugin-framework/schema/validator"
	"github.com/hashicorp/terraform-plugin-framework/types"

	"github.com/sandbox-lease/terraform-provider-sandbox/datasources/lease"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/service"
	"github.com/sandbox-lease/terraform-provider-sandbox/provider/configured"
	"github.com/sandbox-lease/terraform-provider-sandbox/provider/given"
	"github.com/sandbox-lease/terraform-provider-sandbox/provider/labels"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// NewDataSource returns an unconfigured data source for the leases that match filters.
func NewDataSource() datasource.DataSource {
	return configured.NewDataSource(configured.DataSource[Model]{
		Name: "leases", Title: "Leases", Schema: describe, Read: read,
	})
}

// Model is the data source in configuration and state.
type Model struct {
	EnvironmentID types.String  `tfsdk:"environment_id"`
	AgentDID      types.String  `tfsdk:"agent_did"`
	Status        types.String  `tfsdk:"status"`
	Labels        types.Map     `tfsdk:"labels"`
	Leases        []lease.Model `tfsdk:"leases"`
}

func describe() schema.Schema {
	return schema.Schema{
		MarkdownDescription: "The leases of the ledger, each in its current generation. Without " +
			"filters it contains all leases, including ended ones.",
		Attributes: map[string]schema.Attribute{
			"environment_id": schema.StringAttribute{
				MarkdownDescription: "Only leases of this environment. Default: all.",
				Optional:            true,
				Validators:          []validator.String{given.Text{}},
			},
			"agent_did": schema.StringAttribute{
				MarkdownDescription: "Only leases of this agent. Default: all.",
				Optional:            true,
				Validators:          []validator.String{given.Text{}},
			},
			"status": schema.StringAttribute{
				MarkdownDescription: "Only leases with this status: `pending`, `active`, `expired` or `destroyed`. " +
					"Default: any.",
				Optional: true,
				Validators: []validator.String{stringvalidator.OneOf(
					string(sandbox.LeasePending), string(sandbox.LeaseActive), string(sandbox.LeaseExpired),
					string(sandbox.LeaseDestroyed))},
			},
			"labels": labels.Filter("Only leases"),
			"leases": schema.ListNestedAttribute{
				MarkdownDescription: "The leases, by id.",
				Computed:            true,
				NestedObject:        schema.NestedAttributeObject{Attributes: lease.Attributes()},
			},
		},
	}
}

func read(ctx context.Context, p *configured.Provider, m *Model) (diag.Diagnostics, error) {
	svc, err := p.Open(ctx)
	if err != nil {
		return nil, err
	}
	selector, diags := labels.Selector(ctx, m.Labels)
	if diags.HasError() {
		return diags, nil
	}
	f := sandbox.LeaseFilter{
		EnvironmentID: m.EnvironmentID.ValueString(),
		AgentDID:      m.AgentDID.ValueString(),
		Status:        sandbox.LeaseStatus(m.Status.ValueString()),
		Labels:        selector,
	}
	m.Leases = []lease.Model{} // an empty list, not null
	for l, err := range service.EachLease(ctx, svc, f) {
		if err != nil {
			return nil, err
		}
		flat, d := lease.Flatten(ctx, l)
		diags.Append(d...)
		m.Leases = append(m.Leases, flat)
	}
	return diags, nil
}
