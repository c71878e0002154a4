package provider_test

import (
	"maps"
	"slices"
	"testing"

	"github.com/hashicorp/terraform-plugin-framework/providerserver"
	"github.com/hashicorp/terraform-plugin-go/tfprotov6"
	"github.com/hashicorp/terraform-plugin-go/tftypes"

	"github.com/sandbox-lease/terraform-provider-sandbox/provider"
)

// An empty text selects nothing that a configuration can mean. Only an omitted filter selects all: otherwise an empty
// variable would read the whole ledger.
func TestAnEmptyFilterIsRefused(t *testing.T) {
	t.Parallel()
	p, schemas := unconfigured(t)
	refuses := func(kind, name string, diags []*tfprotov6.Diagnostic, err error) {
		t.Helper()
		must(t, err)
		if !slices.ContainsFunc(diags, func(d *tfprotov6.Diagnostic) bool {
			return d.Severity == tfprotov6.DiagnosticSeverityError && d.Attribute.String() == `AttributeName("`+name+`")`
		}) {
			t.Errorf("%s accepts an empty %s: %s", kind, name, text(diags))
		}
	}
	for _, kind := range slices.Sorted(maps.Keys(schemas.DataSourceSchemas)) {
		block := schemas.DataSourceSchemas[kind].Block
		for _, name := range filters(block) {
			got, err := p.ValidateDataResourceConfig(t.Context(), &tfprotov6.ValidateDataResourceConfigRequest{
				TypeName: kind, Config: dynamic(block, map[string]any{name: ""}),
			})
			refuses("data "+kind, name, got.Diagnostics, err)
		}
	}
	for _, kind := range slices.Sorted(maps.Keys(schemas.ListResourceSchemas)) {
		block := schemas.ListResourceSchemas[kind].Block
		for _, name := range filters(block) {
			got, err := p.ValidateListResourceConfig(t.Context(), &tfprotov6.ValidateListResourceConfigRequest{
				TypeName: kind, Config: dynamic(block, map[string]any{name: ""}),
			})
			refuses("list "+kind, name, got.Diagnostics, err)
		}
	}
}

// unconfigured returns the provider before it is configured, and its schemas.
func unconfigured(t *testing.T) (server, *tfprotov6.GetProviderSchemaResponse) {
	t.Helper()
	newest, err := providerserver.NewProtocol6WithError(provider.New("test")())()
	must(t, err)
	p := newest.(server)
	schemas, err := p.GetProviderSchema(t.Context(), &tfprotov6.GetProviderSchemaRequest{})
	must(t, err)
	return p, schemas
}

// filters returns the names of the optional texts.
func filters(b *tfprotov6.SchemaBlock) (names []string) {
	for _, a := range b.Attributes {
		if a.Optional && !a.Computed && a.Type != nil && a.Type.Is(tftypes.String) {
			names = append(names, a.Name)
		}
	}
	return names
}
