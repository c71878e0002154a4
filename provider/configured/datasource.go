package configured

import (
	"context"

	"github.com/hashicorp/terraform-plugin-framework/datasource"
	"github.com/hashicorp/terraform-plugin-framework/datasource/schema"
	"github.com/hashicorp/terraform-plugin-framework/diag"

	"github.com/sandbox-lease/terraform-provider-sandbox/provider/diagnose"
)

// DataSource describes a data source whose configuration and state are an M.
type DataSource[M any] struct {
	// Name is the name without the provider's: "leases" is sandbox_leases.
	Name string
	// Title names what it reads in the titles of errors: "Leases".
	Title  string
	Schema func() schema.Schema
	// Read completes the model, which has the configuration. Its error becomes one diagnostic.
	Read func(ctx context.Context, p *Provider, m *M) (diag.Diagnostics, error)
}

// NewDataSource returns an unconfigured data source.
func NewDataSource[M any](d DataSource[M]) datasource.DataSource { return &dataSource[M]{is: d} }

type dataSource[M any] struct {
	is       DataSource[M]
	provider *Provider // nil while Terraform only validates
}

var _ datasource.DataSourceWithConfigure = (*dataSource[struct{}])(nil)

// Configure takes over the configured provider.
func (d *dataSource[M]) Configure(_ context.Context, req datasource.ConfigureRequest,
	resp *datasource.ConfigureResponse) {
	p, diags := From(req.ProviderData)
	resp.Diagnostics.Append(diags...)
	d.provider = p
}

// Metadata names the data source.
func (d *dataSource[M]) Metadata(_ context.Context, req datasource.MetadataRequest,
	resp *datasource.MetadataResponse) {
	resp.TypeName = req.ProviderTypeName + "_" + d.is.Name
}

// Schema describes the data source.
func (d *dataSource[M]) Schema(_ context.Context, _ datasource.SchemaRequest, resp *datasource.SchemaResponse) {
	resp.Schema = d.is.Schema()
}

// Read reads what the configuration selects.
func (d *dataSource[M]) Read(ctx context.Context, req datasource.ReadRequest, resp *datasource.ReadResponse) {
	var m M
	resp.Diagnostics.Append(req.Config.Get(ctx, &m)...)
	if resp.Diagnostics.HasError() {
		return
	}
	diags, err := d.is.Read(ctx, d.provider, &m)
	resp.Diagnostics.Append(diags...)
	if err != nil {
		resp.Diagnostics.Append(diagnose.Failed("Reading "+d.is.Title+" Failed", err, nil)...)
	}
	if !resp.Diagnostics.HasError() {
		resp.Diagnostics.Append(resp.State.Set(ctx, &m)...)
	}
}
