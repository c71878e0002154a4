package lease

import (
	"github.com/hashicorp/terraform-plugin-framework/datasource/schema"
	"github.com/hashicorp/terraform-plugin-framework/types"

	"github.com/sandbox-lease/terraform-provider-sandbox/provider/value"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// Companion is an element of companions.
type Companion struct {
	Name     types.String `tfsdk:"name"`
	Image    types.String `tfsdk:"image"`
	State    types.String `tfsdk:"state"`
	Reason   types.String `tfsdk:"reason"`
	Since    types.String `tfsdk:"since"`
	Restarts types.Int64  `tfsdk:"restarts"`
}

func companionsAttribute() schema.ListNestedAttribute {
	text := func(description string) schema.Attribute {
		return schema.StringAttribute{MarkdownDescription: description, Computed: true}
	}
	return schema.ListNestedAttribute{
		MarkdownDescription: "Companions of the sandbox, by name. Empty without any.",
		Computed:            true,
		NestedObject: schema.NestedAttributeObject{Attributes: map[string]schema.Attribute{
			"name":   text("Name of the companion."),
			"image":  text("Image of the companion."),
			"state":  text("`starting`, `ready`, `unhealthy` (its health checks fail) or `failed`."),
			"reason": text("Why it is unhealthy or failed. Null otherwise."),
			"since":  text("When it entered its state."),
			"restarts": schema.Int64Attribute{
				MarkdownDescription: "Restarts by `restart = \"on_failure\"` in this generation.",
				Computed:            true,
			},
		}},
	}
}

func flattenCompanions(all []sandbox.CompanionStatus) []Companion {
	flat := make([]Companion, len(all))
	for i, c := range all {
		flat[i] = Companion{
			Name:     types.StringValue(c.Name),
			Image:    types.StringValue(c.Image),
			State:    value.String(c.State),
			Reason:   value.String(c.Message),
			Since:    value.Time(c.Since),
			Restarts: types.Int64Value(c.Restarts),
		}
	}
	return flat
}
