// Package timeout is the timeouts block of resources.
package timeout

import (
	"context"
	"fmt"
	"time"

	"github.com/hashicorp/terraform-plugin-framework-timeouts/resource/timeouts"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema"
	"github.com/hashicorp/terraform-plugin-framework/schema/validator"
)

// Block is timeouts.Block with its own description, for which that function has no option. It refuses durations that
// leave no time.
func Block(ctx context.Context, opts timeouts.Opts) schema.Block {
	block := timeouts.Block(ctx, opts)
	nested, ok := block.(schema.SingleNestedBlock)
	if !ok {
		return block
	}
	nested.MarkdownDescription = "Time limits of operations, such as `90s` or `5m`."
	for name, a := range nested.Attributes {
		if text, ok := a.(schema.StringAttribute); ok {
			text.Description += " More than `0s`."
			text.Validators = append(text.Validators, Positive{})
			nested.Attributes[name] = text
		}
	}
	return nested
}

// Positive refuses durations of 0s or less, with which an operation fails before it begins.
type Positive struct{}

// Description implements validator.Describer.
func (Positive) Description(context.Context) string { return "must be more than 0s" }

// MarkdownDescription implements validator.Describer.
func (v Positive) MarkdownDescription(ctx context.Context) string { return v.Description(ctx) }

// ValidateString leaves invalid durations to the validator of the timeouts.
func (Positive) ValidateString(_ context.Context, req validator.StringRequest,
	resp *validator.StringResponse) {
	d, err := time.ParseDuration(req.ConfigValue.ValueString())
	if req.ConfigValue.IsNull() || req.ConfigValue.IsUnknown() || err != nil || d > 0 {
		return
	}
	resp.Diagnostics.AddAttributeError(req.Path, "Invalid Timeout",
		fmt.Sprintf("%s must be more than 0s, not %q.", req.Path, req.ConfigValue.ValueString()))
}
