// Package timeout is the timeouts block of resources.
package timeout

import (
	"context"

	"github.com/hashicorp/terraform-plugin-framework-timeouts/resource/timeouts"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema"
)

// Block is timeouts.Block with a description of its own, which that one has no option for.
func Block(ctx context.Context, opts timeouts.Opts) schema.Block {
	block := timeouts.Block(ctx, opts)
	if nested, ok := block.(schema.SingleNestedBlock); ok {
		nested.MarkdownDescription = "How long operations may take, as durations such as `90s` or `5m`."
		return nested
	}
	return block
}
