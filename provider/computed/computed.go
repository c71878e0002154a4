// Package computed describes attributes of a resource in a data source: with the same names, types and descriptions,
// but all computed.
package computed

import (
	"fmt"

	datasource "github.com/hashicorp/terraform-plugin-framework/datasource/schema"
	resource "github.com/hashicorp/terraform-plugin-framework/resource/schema"
)

// Attributes returns the named attributes of a resource. It panics if the resource lacks a name, or if it does not
// support an attribute's kind.
func Attributes(of map[string]resource.Attribute, names ...string) map[string]datasource.Attribute {
	all := make(map[string]datasource.Attribute, len(names))
	for _, name := range names {
		all[name] = attribute(name, of[name])
	}
	return all
}

func every(of map[string]resource.Attribute) map[string]datasource.Attribute {
	all := make(map[string]datasource.Attribute, len(of))
	for name, a := range of {
		all[name] = attribute(name, a)
	}
	return all
}

func attribute(name string, a resource.Attribute) datasource.Attribute {
	switch a := a.(type) {
	case resource.StringAttribute:
		return datasource.StringAttribute{
			MarkdownDescription: a.MarkdownDescription,
			Computed:            true,
			Sensitive:           a.Sensitive,
			CustomType:          a.CustomType,
		}
	case resource.BoolAttribute:
		return datasource.BoolAttribute{MarkdownDescription: a.MarkdownDescription, Computed: true}
	case resource.Int64Attribute:
		return datasource.Int64Attribute{MarkdownDescription: a.MarkdownDescription, Computed: true}
	case resource.Float64Attribute:
		return datasource.Float64Attribute{MarkdownDescription: a.MarkdownDescription, Computed: true}
	case resource.SetAttribute:
		return datasource.SetAttribute{MarkdownDescription: a.MarkdownDescription, Computed: true, ElementType: a.ElementType}
	case resource.ListAttribute:
		return datasource.ListAttribute{
			MarkdownDescription: a.MarkdownDescription,
			Computed:            true,
			ElementType:         a.ElementType,
		}
	case resource.MapAttribute:
		return datasource.MapAttribute{MarkdownDescription: a.MarkdownDescription, Computed: true, ElementType: a.ElementType}
	case resource.SingleNestedAttribute:
		return datasource.SingleNestedAttribute{
			MarkdownDescription: a.MarkdownDescription,
			Computed:            true,
			Attributes:          every(a.Attributes),
		}
	case resource.ListNestedAttribute:
		return datasource.ListNestedAttribute{
			MarkdownDescription: a.MarkdownDescription, Computed: true,
			NestedObject: datasource.NestedAttributeObject{Attributes: every(a.NestedObject.Attributes)},
		}
	case resource.MapNestedAttribute:
		return datasource.MapNestedAttribute{
			MarkdownDescription: a.MarkdownDescription, Computed: true,
			NestedObject: datasource.NestedAttributeObject{Attributes: every(a.NestedObject.Attributes)},
		}
	default:
		panic(fmt.Sprintf("attribute %s is a %T", name, a))
	}
}
