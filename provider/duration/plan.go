package duration

import (
	"context"

	"github.com/hashicorp/terraform-plugin-framework/resource/schema/planmodifier"
)

// KeepEqual plans the state's value if the configuration only spells the same duration differently. So "24h" to
// "24h0m0s" is not a change.
func KeepEqual() planmodifier.String { return keepEqual{} }

type keepEqual struct{}

func (keepEqual) Description(context.Context) string {
	return "Another spelling of the same duration is not a change."
}

func (m keepEqual) MarkdownDescription(ctx context.Context) string { return m.Description(ctx) }

func (keepEqual) PlanModifyString(_ context.Context, req planmodifier.StringRequest,
	resp *planmodifier.StringResponse) {
	if (Value{req.PlanValue}).same(Value{req.StateValue}) {
		resp.PlanValue = req.StateValue
	}
}
