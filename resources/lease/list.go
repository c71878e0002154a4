package lease

import (
	"context"

	"github.com/hashicorp/terraform-plugin-framework-validators/stringvalidator"
	"github.com/hashicorp/terraform-plugin-framework/diag"
	"github.com/hashicorp/terraform-plugin-framework/list"
	"github.com/hashicorp/terraform-plugin-framework/list/schema"
	"github.com/hashicorp/terraform-plugin-framework/resource"
	"github.com/hashicorp/terraform-plugin-framework/schema/validator"
	"github.com/hashicorp/terraform-plugin-framework/types"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/service"
	"github.com/sandbox-lease/terraform-provider-sandbox/provider/configured"
	"github.com/sandbox-lease/terraform-provider-sandbox/provider/given"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

var _ list.ListResourceWithConfigure = (*List)(nil)

// NewList returns the unconfigured list resource.
func NewList() list.ListResource { return &List{} }

// List finds leases to import, on Terraform 1.14 and newer.
type List struct {
	configured.Resource
}

// ListModel is the list block's configuration.
type ListModel struct {
	EnvironmentID types.String `tfsdk:"environment_id"`
	AgentDID      types.String `tfsdk:"agent_did"`
	Status        types.String `tfsdk:"status"`
}

// Metadata gives the list resource the name of the resource that it lists.
func (l *List) Metadata(_ context.Context, req resource.MetadataRequest, resp *resource.MetadataResponse) {
	resp.TypeName = req.ProviderTypeName + "_lease"
}

// ListResourceConfigSchema describes the filters.
func (l *List) ListResourceConfigSchema(_ context.Context, _ list.ListResourceSchemaRequest,
	resp *list.ListResourceSchemaResponse) {
	resp.Schema = schema.Schema{
		MarkdownDescription: "All leases of the ledger, by id, each in its current generation.",
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
					"Default: `active`.",
				Optional: true,
				Validators: []validator.String{stringvalidator.OneOf(
					string(sandbox.LeasePending), string(sandbox.LeaseActive), string(sandbox.LeaseExpired),
					string(sandbox.LeaseDestroyed))},
			},
		},
	}
}

// List reads the leases.
func (l *List) List(ctx context.Context, req list.ListRequest, stream *list.ListResultsStream) {
	var m ListModel
	configured.Answer(ctx, req, stream, &m, "Listing Leases Failed", func() ([]configured.Listed, error) {
		return l.find(ctx, m.filter(), req.Limit)
	})
}

func (m ListModel) filter() sandbox.LeaseFilter {
	f := sandbox.LeaseFilter{
		EnvironmentID: m.EnvironmentID.ValueString(),
		AgentDID:      m.AgentDID.ValueString(),
		Status:        sandbox.LeaseStatus(m.Status.ValueString()),
	}
	if f.Status == "" {
		f.Status = sandbox.LeaseActive
	}
	return f
}

// find reads up to wanted leases. Zero means all.
func (l *List) find(ctx context.Context, f sandbox.LeaseFilter, wanted int64) ([]configured.Listed, error) {
	svc, err := l.Provider.Open(ctx)
	if err != nil {
		return nil, err
	}
	var found []configured.Listed
	for lease, err := range service.EachLease(ctx, svc, f) {
		if err != nil {
			return nil, err
		}
		found = append(found, configured.Listed{
			ID:       lease.ID,
			LedgerID: svc.LedgerID,
			Fill: func(ctx context.Context, result *list.ListResult) diag.Diagnostics {
				return fill(ctx, lease, svc.LedgerID, result)
			},
		})
		if int64(len(found)) == wanted {
			break
		}
	}
	return found, nil
}

func fill(ctx context.Context, lease sandbox.Lease, ledgerID string, result *list.ListResult) diag.Diagnostics {
	var m Model
	diags := result.Resource.Get(ctx, &m)
	diags.Append(flatten(ctx, lease, ledgerID, &m)...)
	m.OnExpiry = types.StringValue(onExpiryKeep)
	diags.Append(result.Resource.Set(ctx, &m)...)
	return diags
}
