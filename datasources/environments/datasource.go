// Package environments is the Terraform data source sandbox_environments.
package environments

import (
	"context"

	"github.com/hashicorp/terraform-plugin-framework-validators/stringvalidator"
	"github.com/hashicorp/terraform-plugin-framework/datasource"
	"github.com/hashicorp/terraform-plugin-framework/datasource/schema"
	"github.com/hashicorp/terraform-plugin-framework/diag"
	"github.com/hashicorp/terraform-plugin-framework/schema/validator"
	"github.com/hashicorp/terraform-plugin-framework/types"

	"github.com/sandbox-lease/terraform-provider-sandbox/datasources/environment"
	"github.com/sandbox-lease/terraform-provider-sandbox/provider/configured"
	"github.com/sandbox-lease/terraform-provider-sandbox/provider/labels"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// NewDataSource returns an unconfigured data source for the environments that match filters.
func NewDataSource() datasource.DataSource {
	return configured.NewDataSource(configured.DataSource[Model]{
		Name: "environments", Title: "Environments", Schema: describe, Read: read,
	})
}

// Model is the data source in configuration and state.
type Model struct {
	Type         types.String        `tfsdk:"type"`
	Status       types.String        `tfsdk:"status"`
	Labels       types.Map           `tfsdk:"labels"`
	Environments []environment.Model `tfsdk:"environments"`
}

func describe() schema.Schema {
	return schema.Schema{
		MarkdownDescription: "The environments of the ledger, also those that other tools created. Without filters it " +
			"contains all that are not destroyed.",
		Attributes: map[string]schema.Attribute{
			"type": schema.StringAttribute{
				MarkdownDescription: "Only environments of this type: `rpg`, `catan`, `coding` or `custom`. Default: all.",
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
			"labels": labels.Filter("Only environments"),
			"environments": schema.ListNestedAttribute{
				MarkdownDescription: "The environments, by name.",
				Computed:            true,
				NestedObject:        schema.NestedAttributeObject{Attributes: environment.Attributes()},
			},
		},
	}
}

func read(ctx context.Context, p *configured.Provider, m *Model) (diag.Diagnostics, error) {
	svc, err := p.Open(ctx)
	if err != nil {
		return nil, err
	}
	all, err := svc.ListEnvironments(ctx)
	if err != nil {
		return nil, err
	}
	selector, diags := labels.Selector(ctx, m.Labels)
	m.Environments = []environment.Model{}
	for _, env := range all {
		if !m.selects(env) || !selector.Selects(env.Labels) {
			continue
		}
		flat, d := environment.Flatten(ctx, env)
		diags.Append(d...)
		m.Environments = append(m.Environments, flat)
	}
	return diags, nil
}

func (m *Model) selects(env sandbox.Environment) bool {
	return (m.Type.IsNull() || m.Type.ValueString() == string(env.Type)) &&
		(m.Status.IsNull() || m.Status.ValueString() == string(env.Status))
}
