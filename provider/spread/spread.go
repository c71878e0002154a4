// Package spread reads configurations and plans in which a whole object is unknown, for example because it comes from a
// variable or another resource. A struct cannot hold such an object, but it can hold the object's attributes, each
// unknown.
package spread

import (
	"github.com/hashicorp/terraform-plugin-framework/tfsdk"
	"github.com/hashicorp/terraform-plugin-go/tftypes"
)

// Config returns the configuration with every unknown object spread into unknown attributes.
func Config(c tfsdk.Config) tfsdk.Config {
	c.Raw = spread(c.Raw)
	return c
}

// Plan returns the plan with every unknown object spread into unknown attributes.
func Plan(p tfsdk.Plan) tfsdk.Plan {
	p.Raw = spread(p.Raw)
	return p
}

// Back restores the unknown objects of the original plan in a plan: Terraform rejects known parts of an object that the
// configuration does not know.
func Back(spread tfsdk.Plan, to *tfsdk.Plan) {
	to.Raw = transform(to.Raw, func(at *tftypes.AttributePath, v tftypes.Value) tftypes.Value {
		was, _, err := tftypes.WalkAttributePath(spread.Raw, at)
		if before, ok := was.(tftypes.Value); err == nil && ok && isUnknownObject(before) {
			return before
		}
		return v
	})
}

func spread(v tftypes.Value) tftypes.Value {
	return transform(v, func(_ *tftypes.AttributePath, v tftypes.Value) tftypes.Value {
		if !isUnknownObject(v) {
			return v
		}
		kinds := v.Type().(tftypes.Object).AttributeTypes //nolint:forcetypeassert // isUnknownObject has looked
		attributes := make(map[string]tftypes.Value, len(kinds))
		for name, kind := range kinds {
			attributes[name] = spread(tftypes.NewValue(kind, tftypes.UnknownValue))
		}
		return tftypes.NewValue(v.Type(), attributes)
	})
}

func isUnknownObject(v tftypes.Value) bool {
	_, ok := v.Type().(tftypes.Object)
	return ok && !v.IsKnown()
}

func transform(v tftypes.Value, f func(*tftypes.AttributePath, tftypes.Value) tftypes.Value) tftypes.Value {
	out, err := tftypes.Transform(v, func(at *tftypes.AttributePath, v tftypes.Value) (tftypes.Value, error) {
		return f(at, v), nil
	})
	if err != nil {
		panic(err) // transform's function keeps all types, and never fails
	}
	return out
}
