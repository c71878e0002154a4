// Package object reads Terraform's objects into structs and writes them back, as the framework's Get and Set do. The
// framework checks each field's tag with a regular expression that it compiles every time. This took a tenth of the
// provider's CPU time in a plan of 500 leases. This package reads the tags of a type once.
package object

import (
	"context"
	"fmt"
	"reflect"
	"sync"

	"github.com/hashicorp/terraform-plugin-framework/attr"
	"github.com/hashicorp/terraform-plugin-framework/diag"
	"github.com/hashicorp/terraform-plugin-framework/types"
)

// Getter is a configuration, a plan or a state.
type Getter interface {
	Get(ctx context.Context, target any) diag.Diagnostics
}

// Setter is a plan or a state.
type Setter interface {
	Set(ctx context.Context, value any) diag.Diagnostics
}

// Get reads an object into the struct that into points to. Each field must have its attribute's type. The struct may
// omit attributes.
func Get(ctx context.Context, from Getter, into any) diag.Diagnostics {
	var object types.Object
	diags := from.Get(ctx, &object)
	if diags.HasError() {
		return diags
	}
	attributes, target := object.Attributes(), reflect.ValueOf(into).Elem()
	for name, index := range fieldsOf(target.Type()) {
		v, field := reflect.ValueOf(attributes[name]), target.FieldByIndex(index)
		if !v.IsValid() || !v.Type().AssignableTo(field.Type()) {
			return append(diags, defect("Attribute %s is a %T, and %s needs a %s.", name, attributes[name], target.Type(),
				field.Type()))
		}
		field.Set(v)
	}
	return diags
}

// Set writes a struct into an object. The struct must have a field for each attribute.
func Set(ctx context.Context, to Setter, from any) diag.Diagnostics {
	source := reflect.ValueOf(from)
	fields := fieldsOf(source.Type())
	kinds, attributes := make(map[string]attr.Type, len(fields)), make(map[string]attr.Value, len(fields))
	for name, index := range fields {
		v, ok := source.FieldByIndex(index).Interface().(attr.Value)
		if !ok {
			return diag.Diagnostics{defect("Field %s of %s is not a value of an attribute.", name, source.Type())}
		}
		kinds[name], attributes[name] = v.Type(ctx), v
	}
	object, diags := types.ObjectValue(kinds, attributes)
	if diags.HasError() {
		return diags
	}
	return append(diags, to.Set(ctx, object)...)
}

func defect(format string, args ...any) diag.Diagnostic {
	return diag.NewErrorDiagnostic("Converting Object Failed",
		fmt.Sprintf(format, args...)+" This is a defect of the provider; please report it.")
}

// structs caches the fields of structs, by type.
var structs = struct {
	sync.RWMutex

	fields map[reflect.Type]map[string][]int
}{fields: map[reflect.Type]map[string][]int{}}

// fieldsOf returns the fields of a struct and its embedded structs, by attribute name.
func fieldsOf(t reflect.Type) map[string][]int {
	structs.RLock()
	fields, known := structs.fields[t]
	structs.RUnlock()
	if known {
		return fields
	}
	fields = map[string][]int{}
	for _, f := range reflect.VisibleFields(t) {
		if name := f.Tag.Get("tfsdk"); name != "" {
			fields[name] = f.Index
		}
	}
	structs.Lock()
	defer structs.Unlock()
	structs.fields[t] = fields
	return fields
}
