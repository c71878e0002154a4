package configured

import (
	"context"

	"github.com/hashicorp/terraform-plugin-framework/diag"
	"github.com/hashicorp/terraform-plugin-framework/path"
	"github.com/hashicorp/terraform-plugin-framework/resource/identityschema"
	"github.com/hashicorp/terraform-plugin-framework/tfsdk"
	"github.com/hashicorp/terraform-plugin-framework/types"
)

// IdentityByID is the identity of an object that its id names; CLIs before 1.12 ignore it.
func IdentityByID(description string) identityschema.Schema {
	return identityschema.Schema{Attributes: map[string]identityschema.Attribute{
		"id": identityschema.StringAttribute{Description: description, RequiredForImport: true},
	}}
}

// Identify writes the identity of an object. Create, Read and Update call it first of all: the framework
// takes the lack of one for an error even where the object is being dropped from the state, and a CLI that
// keeps no identities hands none over.
func Identify(ctx context.Context, identity *tfsdk.ResourceIdentity, id string) diag.Diagnostics {
	return identity.SetAttribute(ctx, path.Root("id"), types.StringValue(id))
}
