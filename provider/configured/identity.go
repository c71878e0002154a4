package configured

import (
	"context"

	"github.com/hashicorp/terraform-plugin-framework/diag"
	"github.com/hashicorp/terraform-plugin-framework/path"
	"github.com/hashicorp/terraform-plugin-framework/resource"
	"github.com/hashicorp/terraform-plugin-framework/resource/identityschema"
	"github.com/hashicorp/terraform-plugin-framework/tfsdk"
	"github.com/hashicorp/terraform-plugin-framework/types"

	"github.com/sandbox-lease/terraform-provider-sandbox/provider/diagnose"
)

// IdentityByID is the identity of an object that has a unique id. CLIs before 1.12 ignore it.
func IdentityByID(description string) identityschema.Schema {
	return identityschema.Schema{Attributes: map[string]identityschema.Attribute{
		"id": identityschema.StringAttribute{Description: description, RequiredForImport: true},
	}}
}

// IdentityInLedger is the identity of an object whose id is unique in its ledger.
func IdentityInLedger(description string) identityschema.Schema {
	s := IdentityByID(description)
	s.Attributes["ledger_id"] = identityschema.StringAttribute{
		Description: "Id of the ledger that the object is in. An import from another ledger is refused. Default: the " +
			"ledger that the provider reaches.",
		OptionalForImport: true,
	}
	return s
}

// Identify writes the identity of an object. Read and Update must call it first: the framework fails without an
// identity, even if the object leaves the state. CLIs without identities pass none.
func Identify(ctx context.Context, identity *tfsdk.ResourceIdentity, id string) diag.Diagnostics {
	return identity.SetAttribute(ctx, path.Root("id"), types.StringValue(id))
}

// IdentifyIn writes the identity of an object in a ledger, as Identify does. ledgerID is "" while unknown. If Terraform
// keeps the identity without a ledger, it stays without: an identity must not change.
func IdentifyIn(ctx context.Context, identity *tfsdk.ResourceIdentity, ledgerID, id string) diag.Diagnostics {
	var kept, in types.String
	diags := identity.GetAttribute(ctx, path.Root("id"), &kept)
	diags.Append(identity.GetAttribute(ctx, path.Root("ledger_id"), &in)...)
	diags.Append(Identify(ctx, identity, id)...)
	if ledgerID == "" || !kept.IsNull() && in.IsNull() {
		return diags
	}
	return append(diags, identity.SetAttribute(ctx, path.Root("ledger_id"), types.StringValue(ledgerID))...)
}

// Import imports the object that an id or an identity names. The object's state has id and ledger_id. title is the
// title of errors.
func (p *Provider) Import(ctx context.Context, title string, req resource.ImportStateRequest,
	resp *resource.ImportStateResponse) {
	resource.ImportStatePassthroughWithIdentity(ctx, path.Root("id"), path.Root("id"), req, resp)
	var id, ledger types.String
	resp.Diagnostics.Append(resp.State.GetAttribute(ctx, path.Root("id"), &id)...)
	if req.ID == "" {
		resp.Diagnostics.Append(req.Identity.GetAttribute(ctx, path.Root("ledger_id"), &ledger)...)
	}
	if resp.Diagnostics.HasError() {
		return
	}
	svc, err := p.OpenLedger(ctx, ledger.ValueString())
	if err != nil {
		resp.Diagnostics.Append(diagnose.Failed(title, err, nil)...)
		return
	}
	resp.Diagnostics.Append(resp.State.SetAttribute(ctx, path.Root("ledger_id"), svc.LedgerID)...)
	if resp.Identity != nil {
		resp.Diagnostics.Append(resp.Identity.SetAttribute(ctx, path.Root("id"), id)...)
		resp.Diagnostics.Append(resp.Identity.SetAttribute(ctx, path.Root("ledger_id"), svc.LedgerID)...)
	}
}
