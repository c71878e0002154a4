// Command bareprovider is a Terraform provider with one resource, bare_lease. It has the schema of sandbox_lease and
// does nothing. The time of its plan is the minimum for any provider with this schema: it is spent in Terraform, the
// plugin protocol and the framework.
package main

import (
	"context"
	"fmt"
	"os"

	"github.com/hashicorp/terraform-plugin-framework/datasource"
	"github.com/hashicorp/terraform-plugin-framework/provider"
	"github.com/hashicorp/terraform-plugin-framework/providerserver"
	"github.com/hashicorp/terraform-plugin-framework/resource"
	"github.com/hashicorp/terraform-plugin-go/tftypes"

	"github.com/sandbox-lease/terraform-provider-sandbox/provider/tune"
	"github.com/sandbox-lease/terraform-provider-sandbox/resources/lease"
)

func main() {
	if err := serve(); err != nil {
		fmt.Fprintln(os.Stderr, "bareprovider:", err)
		os.Exit(1)
	}
}

func serve() error {
	if err := tune.Process(); err != nil {
		return err
	}
	return providerserver.Serve(context.Background(), func() provider.Provider { return bare{} },
		providerserver.ServeOpts{Address: "registry.terraform.io/sandbox-lease/bare"})
}

// bare is the provider.
type bare struct{}

func (bare) Metadata(_ context.Context, _ provider.MetadataRequest, resp *provider.MetadataResponse) {
	resp.TypeName = "bare"
}

func (bare) Schema(context.Context, provider.SchemaRequest, *provider.SchemaResponse) {}

func (bare) Configure(context.Context, provider.ConfigureRequest, *provider.ConfigureResponse) {}

func (bare) DataSources(context.Context) []func() datasource.DataSource { return nil }

func (bare) Resources(context.Context) []func() resource.Resource {
	return []func() resource.Resource{func() resource.Resource { return idle{} }}
}

// idle is the resource.
type idle struct{}

func (idle) Metadata(_ context.Context, req resource.MetadataRequest, resp *resource.MetadataResponse) {
	resp.TypeName = req.ProviderTypeName + "_lease"
}

func (idle) Schema(ctx context.Context, req resource.SchemaRequest, resp *resource.SchemaResponse) {
	new(lease.Resource).Schema(ctx, req, resp)
}

// Create invents a value for each unknown attribute, about as large as that of a lease.
func (idle) Create(_ context.Context, req resource.CreateRequest, resp *resource.CreateResponse) {
	state, err := tftypes.Transform(req.Plan.Raw,
		func(_ *tftypes.AttributePath, v tftypes.Value) (tftypes.Value, error) {
			switch {
			case v.IsKnown():
				return v, nil
			case v.Type().Is(tftypes.String):
				return tftypes.NewValue(tftypes.String, "did:plc:agent0::bench-terraform"), nil
			default:
				return tftypes.NewValue(v.Type(), 512), nil
			}
		})
	if err != nil {
		resp.Diagnostics.AddError("Creating Failed", err.Error())
		return
	}
	resp.State.Raw = state
}

// Read leaves the state as it is.
func (idle) Read(context.Context, resource.ReadRequest, *resource.ReadResponse) {}

func (idle) Update(_ context.Context, req resource.UpdateRequest, resp *resource.UpdateResponse) {
	resp.State.Raw = req.Plan.Raw
}

func (idle) Delete(context.Context, resource.DeleteRequest, *resource.DeleteResponse) {}
