package provider

import (
	"maps"
	"reflect"
	"slices"
	"testing"

	"github.com/hashicorp/terraform-plugin-framework/action"
	"github.com/hashicorp/terraform-plugin-framework/attr"
	"github.com/hashicorp/terraform-plugin-framework/datasource"
	"github.com/hashicorp/terraform-plugin-framework/ephemeral"
	"github.com/hashicorp/terraform-plugin-framework/list"
	"github.com/hashicorp/terraform-plugin-framework/provider"
	"github.com/hashicorp/terraform-plugin-framework/resource"
	"github.com/hashicorp/terraform-plugin-framework/tfsdk"
	"github.com/hashicorp/terraform-plugin-framework/types"
	"github.com/hashicorp/terraform-plugin-framework/types/basetypes"
	"github.com/hashicorp/terraform-plugin-go/tftypes"

	"github.com/sandbox-lease/terraform-provider-sandbox/actions/expire"
	imagedata "github.com/sandbox-lease/terraform-provider-sandbox/datasources/containerimage"
	costdata "github.com/sandbox-lease/terraform-provider-sandbox/datasources/cost"
	driftdata "github.com/sandbox-lease/terraform-provider-sandbox/datasources/drift"
	environmentdata "github.com/sandbox-lease/terraform-provider-sandbox/datasources/environment"
	environmentsdata "github.com/sandbox-lease/terraform-provider-sandbox/datasources/environments"
	eventsdata "github.com/sandbox-lease/terraform-provider-sandbox/datasources/events"
	leasedata "github.com/sandbox-lease/terraform-provider-sandbox/datasources/lease"
	leasesdata "github.com/sandbox-lease/terraform-provider-sandbox/datasources/leases"
	pricebookdata "github.com/sandbox-lease/terraform-provider-sandbox/datasources/pricebook"
	"github.com/sandbox-lease/terraform-provider-sandbox/provider/configured"
	"github.com/sandbox-lease/terraform-provider-sandbox/resources/containerimage"
	"github.com/sandbox-lease/terraform-provider-sandbox/resources/environment"
	"github.com/sandbox-lease/terraform-provider-sandbox/resources/lease"
)

// models are the structs for configurations, plans and states, by kind and name of the object.
var models = map[string]any{
	"provider":                         &model{},
	"resource sandbox_environment":     &environment.Model{},
	"resource sandbox_lease":           &lease.Model{},
	"resource sandbox_container_image": &containerimage.Model{},
	"resource container_image":         &containerimage.Model{},
	"data sandbox_environment":         &environmentdata.Model{},
	"data sandbox_environments":        &environmentsdata.Model{},
	"data sandbox_lease":               &leasedata.Model{},
	"data sandbox_leases":              &leasesdata.Model{},
	"data sandbox_cost":                &costdata.Model{},
	"data sandbox_drift":               &driftdata.Model{},
	"data sandbox_events":              &eventsdata.Model{},
	"data sandbox_price_book":          &pricebookdata.Model{},
	"data sandbox_container_image":     &imagedata.Model{},
	"ephemeral sandbox_lease":          &lease.EphemeralModel{},
	"list sandbox_environment":         &environment.ListModel{},
	"list sandbox_lease":               &lease.ListModel{},
	"action sandbox_expire":            &expire.Model{},
}

// elements are the structs of collections that a model holds as framework values, by the collection's place in the
// schema.
var elements = map[string]any{
	"resource sandbox_environment.mount":                 environment.Mount{},
	"resource sandbox_environment.copy":                  environment.Copy{},
	"resource sandbox_environment.archive":               environment.Archive{},
	"resource sandbox_environment.post_start":            environment.PostStart{},
	"resource sandbox_environment.process":               environment.Process{},
	"resource sandbox_environment.companions":            environment.Companion{},
	"resource sandbox_environment.llm":                   environment.LLMRoute{},
	"resource sandbox_environment.llm.models":            environment.LLMModel{},
	"resource sandbox_environment.network.credentials":   environment.Credential{},
	"resource sandbox_environment.secrets":               environment.Secret{},
	"resource sandbox_container_image.build.secrets":     containerimage.BuildSecret{},
	"resource container_image.build.secrets":             containerimage.BuildSecret{},
	"data sandbox_environment.mount":                     environment.Mount{},
	"data sandbox_environment.copy":                      environment.Copy{},
	"data sandbox_environment.post_start":                environment.PostStart{},
	"data sandbox_environment.process":                   environment.Process{},
	"data sandbox_environment.companions":                environment.Companion{},
	"data sandbox_environment.llm":                       environment.LLMRoute{},
	"data sandbox_environment.llm.models":                environment.LLMModel{},
	"data sandbox_environment.credentials":               environment.Credential{},
	"data sandbox_environments.environments.mount":       environment.Mount{},
	"data sandbox_environments.environments.copy":        environment.Copy{},
	"data sandbox_environments.environments.post_start":  environment.PostStart{},
	"data sandbox_environments.environments.process":     environment.Process{},
	"data sandbox_environments.environments.companions":  environment.Companion{},
	"data sandbox_environments.environments.llm":         environment.LLMRoute{},
	"data sandbox_environments.environments.llm.models":  environment.LLMModel{},
	"data sandbox_environments.environments.credentials": environment.Credential{},
	"resource sandbox_container_image.registry_auth":     containerimage.Auth{},
	"resource container_image.registry_auth":             containerimage.Auth{},
	"resource sandbox_container_image.post_start":        containerimage.PostStart{},
	"resource container_image.post_start":                containerimage.PostStart{},
}

// anySchema is a schema of any kind.
type anySchema interface{ Type() attr.Type }

// schemas returns the schema of every object, by kind and name.
func schemas(t *testing.T) map[string]anySchema {
	t.Helper()
	ctx, p := t.Context(), &Provider{}
	all := map[string]anySchema{}
	const prefix = "sandbox"
	var of provider.SchemaResponse
	p.Schema(ctx, provider.SchemaRequest{}, &of)
	all["provider"] = of.Schema
	for _, r := range p.Resources(ctx) {
		var name resource.MetadataResponse
		var s resource.SchemaResponse
		r().Metadata(ctx, resource.MetadataRequest{ProviderTypeName: prefix}, &name)
		r().Schema(ctx, resource.SchemaRequest{}, &s)
		all["resource "+name.TypeName] = s.Schema
	}
	for _, d := range p.DataSources(ctx) {
		var name datasource.MetadataResponse
		var s datasource.SchemaResponse
		d().Metadata(ctx, datasource.MetadataRequest{ProviderTypeName: prefix}, &name)
		d().Schema(ctx, datasource.SchemaRequest{}, &s)
		all["data "+name.TypeName] = s.Schema
	}
	for _, e := range p.EphemeralResources(ctx) {
		var name ephemeral.MetadataResponse
		var s ephemeral.SchemaResponse
		e().Metadata(ctx, ephemeral.MetadataRequest{ProviderTypeName: prefix}, &name)
		e().Schema(ctx, ephemeral.SchemaRequest{}, &s)
		all["ephemeral "+name.TypeName] = s.Schema
	}
	for _, l := range p.ListResources(ctx) {
		var name resource.MetadataResponse
		var s list.ListResourceSchemaResponse
		l().Metadata(ctx, resource.MetadataRequest{ProviderTypeName: prefix}, &name)
		l().ListResourceConfigSchema(ctx, list.ListResourceSchemaRequest{}, &s)
		all["list "+name.TypeName] = s.Schema
	}
	for _, a := range p.Actions(ctx) {
		var name action.MetadataResponse
		var s action.SchemaResponse
		a().Metadata(ctx, action.MetadataRequest{ProviderTypeName: prefix}, &name)
		a().Schema(ctx, action.SchemaRequest{}, &s)
		all["action "+name.TypeName] = s.Schema
	}
	return all
}

// Each object's struct matches its schema at every depth. An object with everything set survives the round trip through
// the struct.
func TestModelsFitTheirSchemas(t *testing.T) {
	t.Parallel()
	all := schemas(t)
	if have, want := slices.Sorted(maps.Keys(models)), slices.Sorted(maps.Keys(all)); !slices.Equal(have, want) {
		t.Fatalf("there are models of\n%q\nand schemas of\n%q", have, want)
	}
	f := fitting{T: t, collections: map[string]bool{}}
	for name, s := range all {
		whole, err := s.Type().ValueFromTerraform(t.Context(), everythingSet(t, s.Type().TerraformType(t.Context())))
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		object, ok := whole.(types.Object)
		if !ok {
			t.Fatalf("%s is a %T", name, whole)
		}
		f.object(name, object, reflect.TypeOf(models[name]))
	}
	if have, want := slices.Sorted(maps.Keys(f.collections)), slices.Sorted(maps.Keys(elements)); !slices.Equal(have,
		want) {
		t.Errorf("collections of objects are at\n%q\nand their structs are known at\n%q", have, want)
	}
}

// everythingSet returns a value of a type without nulls. Its collections have one element.
func everythingSet(t *testing.T, of tftypes.Type) tftypes.Value {
	t.Helper()
	switch of := of.(type) {
	case tftypes.Object:
		attributes := make(map[string]tftypes.Value, len(of.AttributeTypes))
		for name, a := range of.AttributeTypes {
			attributes[name] = everythingSet(t, a)
		}
		return tftypes.NewValue(of, attributes)
	case tftypes.List:
		return tftypes.NewValue(of, []tftypes.Value{everythingSet(t, of.ElementType)})
	case tftypes.Set:
		return tftypes.NewValue(of, []tftypes.Value{everythingSet(t, of.ElementType)})
	case tftypes.Map:
		return tftypes.NewValue(of, map[string]tftypes.Value{"key": everythingSet(t, of.ElementType)})
	}
	for _, known := range []any{"1s", true, 1.0} {
		if tftypes.ValidateValue(of, known) == nil {
			return tftypes.NewValue(of, known)
		}
	}
	t.Fatalf("no value of %s is known here", of)
	return tftypes.Value{}
}

// fitting compares values with the structs that they are read into.
type fitting struct {
	*testing.T
	// collections are the places of collections that a struct holds as framework values.
	collections map[string]bool
}

var frameworkValue = reflect.TypeFor[attr.Value]()

func (f fitting) object(at string, object types.Object, in reflect.Type) {
	f.Helper()
	if in.Kind() == reflect.Pointer {
		in = in.Elem()
	}
	into := reflect.New(in)
	if d := object.As(f.Context(), into.Interface(), basetypes.ObjectAsOptions{}); d.HasError() {
		f.Errorf("%s does not fit %s: %v", at, in, d)
		return
	}
	back, d := types.ObjectValueFrom(f.Context(), object.AttributeTypes(f.Context()), into.Interface())
	if d.HasError() || !back.Equal(object) {
		f.Errorf("%s comes out of %s as\n%s\nand was\n%s\n%v", at, in, back, object, d)
	}
	attributes := object.Attributes()
	for _, field := range reflect.VisibleFields(in) {
		if name, tagged := field.Tag.Lookup("tfsdk"); tagged {
			f.value(at+"."+name, attributes[name], field.Type)
		}
	}
}

func (f fitting) value(at string, v attr.Value, in reflect.Type) {
	f.Helper()
	element, ok := element(v)
	switch object, nested := v.(types.Object); {
	case nested && !in.Implements(frameworkValue):
		f.object(at, object, in)
	case ok && in.Implements(frameworkValue):
		f.collections[at] = true
		if of := elements[at]; of != nil {
			f.object(at, element, reflect.TypeOf(of))
		}
	case ok:
		f.object(at, element, in.Elem())
	}
}

// element returns the only element of a collection of objects.
func element(v attr.Value) (types.Object, bool) {
	var all []attr.Value
	switch v := v.(type) {
	case types.List:
		all = v.Elements()
	case types.Set:
		all = v.Elements()
	case types.Map:
		all = slices.Collect(maps.Values(v.Elements()))
	}
	if len(all) != 1 {
		return types.Object{}, false
	}
	object, ok := all[0].(types.Object)
	return object, ok
}

// Each resource writes the identity that its schema describes.
func TestIdentitiesFitTheirSchemas(t *testing.T) {
	t.Parallel()
	for _, r := range (&Provider{}).Resources(t.Context()) {
		identified, ok := r().(resource.ResourceWithIdentity)
		if !ok {
			t.Errorf("%T has no identity", r())
			continue
		}
		var s resource.IdentitySchemaResponse
		identified.IdentitySchema(t.Context(), resource.IdentitySchemaRequest{}, &s)
		identity := tfsdk.ResourceIdentity{
			Schema: s.IdentitySchema,
			Raw:    tftypes.NewValue(s.IdentitySchema.Type().TerraformType(t.Context()), nil),
		}
		d := configured.Identify(t.Context(), &identity, "an id")
		if _, in := s.IdentitySchema.Attributes["ledger_id"]; in {
			kept := identity.Raw
			if d.Append(configured.IdentifyIn(t.Context(), &identity, "a ledger", "an id")...); !identity.Raw.Equal(kept) {
				t.Errorf("%T: the identity was %v and becomes %v", r(), kept, identity.Raw)
			}
			identity.Raw = tftypes.NewValue(s.IdentitySchema.Type().TerraformType(t.Context()), nil)
			d.Append(configured.IdentifyIn(t.Context(), &identity, "a ledger", "an id")...)
		}
		var values map[string]tftypes.Value
		if err := identity.Raw.As(&values); d.HasError() || err != nil || len(values) != len(s.IdentitySchema.Attributes) {
			t.Errorf("%T: %v %v", r(), identity.Raw, d)
		}
		for name, v := range values {
			if v.IsNull() {
				t.Errorf("%T: %s is null", r(), name)
			}
		}
	}
}
