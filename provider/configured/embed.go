package configured

import (
	"context"

	"github.com/hashicorp/terraform-plugin-framework/datasource"
	"github.com/hashicorp/terraform-plugin-framework/resource"
)

// DataSource is what every data source embeds to get at the provider.
type DataSource struct {
	// Provider is nil while Terraform only validates.
	Provider *Provider
}

// Configure takes over the configured provider.
func (d *DataSource) Configure(_ context.Context, req datasource.ConfigureRequest, resp *datasource.ConfigureResponse) {
	p, diags := From(req.ProviderData)
	resp.Diagnostics.Append(diags...)
	d.Provider = p
}

// Resource is what every resource embeds to get at the provider.
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
