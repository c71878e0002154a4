package environment

import (
	"context"

	"github.com/hashicorp/terraform-plugin-framework-validators/stringvalidator"
	"github.com/hashicorp/terraform-plugin-framework/diag"
	"github.com/hashicorp/terraform-plugin-framework/list"
	"github.com/hashicorp/terraform-plugin-framework/list/schema"
	"github.com/hashicorp/terraform-plugin-framework/resource"
	"github.com/hashicorp/terraform-plugin-framework/schema/validator"
	"github.com/hashicorp/terraform-plugin-framework/types"

	"github.com/sandbox-lease/terraform-provider-sandbox/provider/configured"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

var _ list.ListResourceWithConfigure = (*List)(nil)

// NewList returns the unconfigured list resource.
func NewList() list.ListResource { return &List{} }

// List finds environments to import, on Terraform 1.14 and newer.
type List struct {
	configured.Resource
}

// ListModel is the list block's configuration.
type ListModel struct {
	Type types.String `tfsdk:"type"`
}

// Metadata gives the list resource the name of the resource that it lists.
func (l *List) Metadata(_ context.Context, req resource.MetadataRequest, resp *resource.MetadataResponse) {
	resp.TypeName = req.ProviderTypeName + "_environment"
}

// ListResourceConfigSchema describes the filters.
func (l *List) ListResourceConfigSchema(_ context.Context, _ list.ListResourceSchemaRequest,
	resp *list.ListResourceSchemaResponse) {
	resp.Schema = schema.Schema{
		MarkdownDescription: "All environments of the ledger that are not destroyed, by name.",
		Attributes: map[string]schema.Attribute{
			"type": schema.StringAttribute{
				MarkdownDescription: "Only environments of this type: `rpg`, `catan`, `coding` or `custom`. Default: all.",
				Optional:            true,
				Validators: []validator.String{stringvalidator.OneOf(
					string(sandbox.TypeRPG), string(sandbox.TypeCatan), string(sandbox.TypeCoding), string(sandbox.TypeCustom))},
			},
		},
	}
}

// List reads the environments.
func (l *List) List(ctx context.Context, req list.ListRequest, stream *list.ListResultsStream) {
	var m ListModel
	configured.Answer(ctx, req, stream, &m, "Listing Environments Failed", func() ([]configured.Listed, error) {
		return l.find(ctx, sandbox.EnvironmentType(m.Type.ValueString()))
	})
}

func (l *List) find(ctx context.Context, kind sandbox.EnvironmentType) ([]configured.Listed, error) {
	svc, err := l.Provider.Open(ctx)
	if err != nil {
		return nil, err
	}
	all, err := svc.ListEnvironments(ctx)
	var found []configured.Listed
	for _, env := range all {
		if kind != "" && env.Type != kind {
			continue
		}
		found = append(found, configured.Listed{
			ID:       env.ID,
			LedgerID: svc.LedgerID,
			Fill: func(ctx context.Context, result *list.ListResult) diag.Diagnostics {
				var m Model
				diags := result.Resource.Get(ctx, &m)
				diags.Append(flatten(ctx, env, svc.LedgerID, &m)...)
				diags.Append(result.Resource.Set(ctx, &m)...)
				return diags
			},
		})
	}
	return found, err
}
