package functions

import (
	"context"

	"github.com/hashicorp/terraform-plugin-framework/function"

	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// parseDuration returns a duration in seconds.
type parseDuration struct{}

// Metadata implements function.Function.
func (parseDuration) Metadata(_ context.Context, _ function.MetadataRequest, resp *function.MetadataResponse) {
	resp.Name = "parse_duration"
}

// Definition implements function.Function.
func (parseDuration) Definition(_ context.Context, _ function.DefinitionRequest, resp *function.DefinitionResponse) {
	resp.Definition = function.Definition{
		Summary: "Seconds of a duration",
		MarkdownDescription: "Returns the number of seconds of a duration such as `ttl`, to compare durations or to pass " +
			"one to a tool that counts in seconds.",
		Parameters: []function.Parameter{
			function.StringParameter{
				Name: "duration",
				MarkdownDescription: "Numbers with units `h`, `m`, `s`, `ms`, `us` or `ns`, such as `1h30m` or `0.5s`. There " +
					"is no unit for days: write `24h`.",
			},
		},
		Return: function.Float64Return{},
	}
}

// Run implements function.Function.
func (parseDuration) Run(ctx context.Context, req function.RunRequest, resp *function.RunResponse) {
	var text string
	if resp.Error = req.Arguments.Get(ctx, &text); resp.Error != nil {
		return
	}
	var d sandbox.Duration
	if err := d.UnmarshalText([]byte(text)); err != nil {
		resp.Error = argument(0, "%s", err)
		return
	}
	resp.Error = resp.Result.Set(ctx, d.D().Seconds())
}
