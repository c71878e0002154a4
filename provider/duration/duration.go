// Package duration is the type of duration attributes. They are Go duration strings. "24h" and "24h0m0s" are the same
// value, so a plan shows no difference.
package duration

import (
	"context"
	"fmt"
	"strings"

	"github.com/hashicorp/terraform-plugin-framework/attr"
	"github.com/hashicorp/terraform-plugin-framework/attr/xattr"
	"github.com/hashicorp/terraform-plugin-framework/diag"
	"github.com/hashicorp/terraform-plugin-framework/types/basetypes"
	"github.com/hashicorp/terraform-plugin-go/tftypes"

	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

var (
	_ basetypes.StringTypable                    = Type{}
	_ basetypes.StringValuableWithSemanticEquals = Value{}
	_ xattr.ValidateableAttribute                = Value{}
)

// Type is the attribute type.
type Type struct {
	basetypes.StringType
}

// Equal reports whether o is the same type.
func (t Type) Equal(o attr.Type) bool {
	other, ok := o.(Type)
	return ok && t.StringType.Equal(other.StringType)
}

func (t Type) String() string { return "duration.Type" }

// ValueType returns an empty value of the type.
func (t Type) ValueType(context.Context) attr.Value { return Value{} }

// ValueFromString wraps a string.
func (t Type) ValueFromString(_ context.Context,
	in basetypes.StringValue) (basetypes.StringValuable, diag.Diagnostics) {
	return Value{StringValue: in}, nil
}

// ValueFromTerraform reads a value from Terraform.
func (t Type) ValueFromTerraform(ctx context.Context, in tftypes.Value) (attr.Value, error) {
	v, err := t.StringType.ValueFromTerraform(ctx, in)
	if err != nil {
		return nil, err
	}
	s, ok := v.(basetypes.StringValue)
	if !ok {
		return nil, fmt.Errorf("a string attribute holds a %T", v)
	}
	return Value{StringValue: s}, nil
}

// Value is a duration as the user wrote it.
type Value struct {
	basetypes.StringValue
}

// New returns a known value in its shortest form: "24h", "5m", "1h30m", "0s".
func New(d sandbox.Duration) Value {
	return Value{basetypes.NewStringValue(text(d))}
}

// FromPointer returns null for nil.
func FromPointer(d *sandbox.Duration) Value {
	if d == nil {
		return Null()
	}
	return New(*d)
}

// Null returns a null value.
func Null() Value { return Value{basetypes.NewStringNull()} }

// Equal reports whether o has the same spelling.
func (v Value) Equal(o attr.Value) bool {
	other, ok := o.(Value)
	return ok && v.StringValue.Equal(other.StringValue)
}

// Type returns the value's type.
func (v Value) Type(context.Context) attr.Type { return Type{} }

// Duration returns the duration, and false if it is null, unknown or invalid.
func (v Value) Duration() (sandbox.Duration, bool) {
	var d sandbox.Duration
	if v.IsNull() || v.IsUnknown() || d.UnmarshalText([]byte(v.ValueString())) != nil {
		return 0, false
	}
	return d, true
}

// Pointer returns the duration, or nil if it is null, unknown or invalid.
func (v Value) Pointer() *sandbox.Duration {
	if d, ok := v.Duration(); ok {
		return &d
	}
	return nil
}

// StringSemanticEquals reports whether both have the same length.
func (v Value) StringSemanticEquals(_ context.Context, o basetypes.StringValuable) (bool, diag.Diagnostics) {
	other, ok := o.(Value)
	return ok && v.same(other), nil
}

func (v Value) same(other Value) bool {
	a, okA := v.Duration()
	b, okB := other.Duration()
	return okA && okB && a == b
}

// ValidateAttribute rejects a value that is not a duration.
func (v Value) ValidateAttribute(_ context.Context, req xattr.ValidateAttributeRequest,
	resp *xattr.ValidateAttributeResponse) {
	if v.IsNull() || v.IsUnknown() {
		return
	}
	var d sandbox.Duration
	if err := d.UnmarshalText([]byte(v.ValueString())); err != nil {
		resp.Diagnostics.AddAttributeError(req.Path, "Invalid Duration", err.Error()+".")
	}
}

func text(d sandbox.Duration) string {
	s := d.String()
	if strings.HasSuffix(s, "m0s") {
		s = strings.TrimSuffix(s, "0s")
	}
	if strings.HasSuffix(s, "h0m") {
		s = strings.TrimSuffix(s, "0m")
	}
	return s
}
