package containerimage

import (
	"context"
	"strings"

	"github.com/hashicorp/terraform-plugin-framework/resource"

	"github.com/sandbox-lease/terraform-provider-sandbox/provider/configured"
)

var (
	_ resource.ResourceWithIdentity  = (*Resource)(nil)
	_ resource.ResourceWithMoveState = (*Resource)(nil)
)

// IdentitySchema describes the identity.
func (r *Resource) IdentitySchema(_ context.Context, _ resource.IdentitySchemaRequest, resp *resource.IdentitySchemaResponse) {
	resp.IdentitySchema = configured.IdentityByID("Name of the image without tag; to import another than latest, use its id with a tag.")
}

// MoveState takes over the state of the same resource under its other name, as it is.
func (r *Resource) MoveState(ctx context.Context) []resource.StateMover {
	var same resource.SchemaResponse
	r.Schema(ctx, resource.SchemaRequest{}, &same)
	from := "container_image"
	if r.short {
		from = "sandbox_container_image"
	}
	return []resource.StateMover{{
		SourceSchema: &same.Schema,
		StateMover: func(ctx context.Context, req resource.MoveStateRequest, resp *resource.MoveStateResponse) {
			// A mirror may have the provider under another host or namespace. SourceState is nil where the
			// state is not of this schema.
			ours := strings.HasSuffix(req.SourceProviderAddress, "/sandbox")
			if req.SourceTypeName != from || req.SourceSchemaVersion != same.Schema.Version || !ours || req.SourceState == nil {
				return // Terraform says that the move is not supported
			}
			var m Model
			resp.Diagnostics.Append(req.SourceState.Get(ctx, &m)...)
			resp.Diagnostics.Append(configured.Identify(ctx, resp.TargetIdentity, m.Name.ValueString())...)
			resp.Diagnostics.Append(resp.TargetState.Set(ctx, &m)...)
		},
	}}
}
