package provider_test

import (
	"errors"
	"io"
	"net"
	"regexp"
	"testing"

	"github.com/hashicorp/terraform-plugin-framework/datasource"
	"github.com/hashicorp/terraform-plugin-framework/ephemeral"
	frameworkprovider "github.com/hashicorp/terraform-plugin-framework/provider"
	"github.com/hashicorp/terraform-plugin-framework/providerserver"
	"github.com/hashicorp/terraform-plugin-framework/resource"
	"github.com/hashicorp/terraform-plugin-go/tfprotov6"
	tfresource "github.com/hashicorp/terraform-plugin-testing/helper/resource"

	"github.com/sandbox-lease/terraform-provider-sandbox/provider"
	"github.com/sandbox-lease/terraform-provider-sandbox/provider/providertest"
)

// The framework finds nothing wrong with any schema.
func TestSchemasAreValid(t *testing.T) {
	t.Parallel()
	server, err := providerserver.NewProtocol6WithError(provider.New("test")())()
	if err != nil {
		t.Fatal(err)
	}
	schemas, err := server.GetProviderSchema(t.Context(), &tfprotov6.GetProviderSchemaRequest{})
	if err != nil || len(schemas.Diagnostics) > 0 {
		t.Fatal(err, schemas.Diagnostics)
	}
}

// Configuring a resource with another provider's data is an error, not a panic.
func TestObjectsRefuseAnotherProvidersData(t *testing.T) {
	t.Parallel()
	p := provider.New("test")()
	for _, r := range p.Resources(t.Context()) {
		var resp resource.ConfigureResponse
		r().(resource.ResourceWithConfigure).Configure(t.Context(), resource.ConfigureRequest{ProviderData: "other"}, &resp)
		if !resp.Diagnostics.HasError() {
			t.Errorf("%T accepts it", r())
		}
	}
	for _, d := range p.DataSources(t.Context()) {
		var resp datasource.ConfigureResponse
		d().(datasource.DataSourceWithConfigure).Configure(t.Context(),
			datasource.ConfigureRequest{ProviderData: "other"}, &resp)
		if !resp.Diagnostics.HasError() {
			t.Errorf("%T accepts it", d())
		}
	}
}

func TestEphemeralResourcesRefuseAnotherProvidersData(t *testing.T) {
	t.Parallel()
	p, ok := provider.New("test")().(frameworkprovider.ProviderWithEphemeralResources)
	if !ok {
		t.Fatal("the provider has no ephemeral resources")
	}
	for _, e := range p.EphemeralResources(t.Context()) {
		var resp ephemeral.ConfigureResponse
		e().(ephemeral.EphemeralResourceWithConfigure).Configure(t.Context(),
			ephemeral.ConfigureRequest{ProviderData: "other"}, &resp)
		if !resp.Diagnostics.HasError() {
			t.Errorf("%T accepts it", e())
		}
	}
}

func TestAccReconcilerThatNeverAnswers(t *testing.T) {
	t.Parallel()
	w := providertest.New(t)
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	w.Must(err)
	address := l.Addr().String()
	w.Must(l.Close())
	tfresource.Test(t, tfresource.TestCase{
		ProtoV6ProviderFactories: w.Providers(),
		Steps: []tfresource.TestStep{{
			Config: `provider "sandbox" {
  reconciler = {
    url   = "http://` + address + `"
    token = "secret-token"
  }
}
data "sandbox_leases" "all" {}`,
			ExpectError: regexp.MustCompile(`(?s)Reading Leases Failed.*` + regexp.QuoteMeta(address)),
		}},
	})
}

func TestCloseIsIdempotent(t *testing.T) {
	t.Parallel()
	c, ok := provider.New("test")().(io.Closer)
	if !ok {
		t.Fatal("a provider cannot be closed")
	}
	if err := errors.Join(c.Close(), c.Close()); err != nil {
		t.Error(err)
	}
}
