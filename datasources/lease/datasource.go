// Package lease is the Terraform data source sandbox_lease.
package lease

import (
	"context"

	"github.com/hashicorp/terraform-plugin-framework-validators/stringvalidator"
	"github.com/hashicorp/terraform-plugin-framework/datasource"
	"github.com/hashicorp/terraform-plugin-framework/datasource/schema"
	"github.com/hashicorp/terraform-plugin-framework/diag"
	"github.com/hashicorp/terraform-plugin-framework/path"
	"github.com/hashicorp/terraform-plugin-framework/schema/validator"

	"github.com/sandbox-lease/terraform-provider-sandbox/provider/configured"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// NewDataSource returns an unconfigured data source for one lease.
func NewDataSource() datasource.DataSource {
	return configured.NewDataSource(configured.DataSource[Model]{
		Name: "lease", Title: "Lease", Schema: describe, Read: read,
	})
}

func describe() schema.Schema {
	attributes := Attributes()
	agent := path.MatchRoot("agent_did")
	attributes["id"] = schema.StringAttribute{
		MarkdownDescription: "`<agent_did>::<environment_id>`. Either this or `agent_did` and " +
			"`environment_id` must be given.",
		Optional:   true,
		Computed:   true,
		Validators: []validator.String{stringvalidator.ExactlyOneOf(path.MatchRoot("id"), agent)},
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
	return schema.Schema{
		MarkdownDescription: "A lease in its current generation, even if it has ended. It includes values that change " +
			"with use: `expires_at`, `last_activity`, `phase` and `cost_usd`. The read first inspects the sandbox on the " +
			"backend, without waking it.",
		Attributes: attributes,
	}
}

func read(ctx context.Context, p *configured.Provider, m *Model) (diag.Diagnostics, error) {
	id := m.ID.ValueString()
	if m.ID.IsNull() {
		id = sandbox.LeaseID(m.AgentDID.ValueString(), m.EnvironmentID.ValueString())
	}
	svc, err := p.Open(ctx)
	if err != nil {
		return nil, err
	}
	l, err := svc.ObserveLease(ctx, id)
	if err != nil {
		return nil, err
	}
	var diags diag.Diagnostics
	*m, diags = Flatten(ctx, l)
	return diags, nil
}
