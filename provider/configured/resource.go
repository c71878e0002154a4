package configured

import (
	"context"

	"github.com/hashicorp/terraform-plugin-framework/resource"
)

// Resource gives the resources that embed it access to the provider.
type Resource struct {
	// Provider is nil while Terraform only validates.
	Provider *Provider
}

// Configure takes over the configured provider.
func (r *Resource) Configure(_ context.Context, req resource.ConfigureRequest, resp *resource.ConfigureResponse) {
	p, diags := From(req.ProviderData)
	resp.Diagnostics.Append(diags...)
	r.Provider = p
}
