// Package upgrade upgrades states that earlier schemas of resources wrote.
package upgrade

import (
	"context"
	"fmt"
	"slices"

	"github.com/hashicorp/terraform-plugin-framework/resource"
	"github.com/hashicorp/terraform-plugin-go/tfprotov6"
	"github.com/hashicorp/terraform-plugin-go/tftypes"
)

// FromBlocks upgrades states of version 0, in which the named lists were blocks. There, an omitted list was empty; as
// an attribute, it is null. kind is the current type of the state.
func FromBlocks(kind tftypes.Type, lists ...string) map[int64]resource.StateUpgrader {
	return map[int64]resource.StateUpgrader{0: {
		StateUpgrader: func(_ context.Context, req resource.UpgradeStateRequest, resp *resource.UpgradeStateResponse) {
			state, err := fromBlocks(kind, lists, req.RawState)
			if err != nil {
				resp.Diagnostics.AddError("Upgrading State Failed", fmt.Sprintf(
					"The state of an earlier provider cannot be read: %v. Restore the state's last version, and report this.", err))
				return
			}
			resp.DynamicValue = state
		},
	}}
}

func fromBlocks(kind tftypes.Type, lists []string, raw *tfprotov6.RawState) (*tfprotov6.DynamicValue, error) {
	state, err := raw.UnmarshalWithOpts(kind, tfprotov6.UnmarshalOpts{
		ValueFromJSONOpts: tftypes.ValueFromJSONOpts{IgnoreUndefinedAttributes: true}, // as for a state of the same version
	})
	if err != nil {
		return nil, err
	}
	var attributes map[string]tftypes.Value
	if err := state.As(&attributes); err != nil {
		return nil, err
	}
	upgraded := make(map[string]tftypes.Value, len(attributes))
	for name, v := range attributes {
		var elements []tftypes.Value
		if slices.Contains(lists, name) && !v.IsNull() {
			if err := v.As(&elements); err != nil {
				return nil, err
			}
			if len(elements) == 0 {
				v = tftypes.NewValue(v.Type(), nil)
			}
		}
		upgraded[name] = v
	}
	d, err := tfprotov6.NewDynamicValue(kind, tftypes.NewValue(kind, upgraded))
	return &d, err
}
