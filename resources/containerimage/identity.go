package containerimage

import (
	"context"

	"github.com/hashicorp/terraform-plugin-framework/resource"

	"github.com/sandbox-lease/terraform-provider-sandbox/provider/configured"
)

var _ resource.ResourceWithIdentity = (*Resource)(nil)

// IdentitySchema describes the identity.
func (r *Resource) IdentitySchema(_ context.Context, _ resource.IdentitySchemaRequest,
	resp *resource.IdentitySchemaResponse) {
	resp.IdentitySchema = configured.IdentityByID("Name of the image without tag; to import another than latest, " +
		"use its id with a tag.")
}
