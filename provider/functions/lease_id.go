package functions

import (
	"context"

	"github.com/hashicorp/terraform-plugin-framework/function"

	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// leaseID returns the id of an agent's lease in an environment.
type leaseID struct{}

// Metadata implements function.Function.
func (leaseID) Metadata(_ context.Context, _ function.MetadataRequest, resp *function.MetadataResponse) {
	resp.Name = "lease_id"
}

// Definition implements function.Function.
func (leaseID) Definition(_ context.Context, _ function.DefinitionRequest, resp *function.DefinitionResponse) {
	resp.Definition = function.Definition{
		Summary: "Id of an agent's lease",
		MarkdownDescription: "Returns the id of the lease of an agent in an environment, for an `import` block, a " +
			"webhook or a link to the dashboard. It is the same in all generations, and before the lease exists.",
		Parameters: []function.Parameter{
			function.StringParameter{
				Name:                "agent_did",
				MarkdownDescription: "The agent's decentralized identifier, such as `did:plc:abc`.",
			},
			function.StringParameter{
				Name: "environment_id",
				MarkdownDescription: "The environment's name: 1 to 63 characters of a-z, 0-9, `.`, `_` and `-`, beginning with " +
					"a letter or digit.",
			},
		},
		Return: function.StringReturn{},
	}
}

// Run implements function.Function.
func (leaseID) Run(ctx context.Context, req function.RunRequest, resp *function.RunResponse) {
	var agent, environment string
	if resp.Error = req.Arguments.Get(ctx, &agent, &environment); resp.Error != nil {
		return
	}
	if err := (sandbox.Acquire{AgentDID: agent, EnvironmentID: environment}).Validate(); err != nil {
		resp.Error = refused(err, "agent_did", "environment_id")
		return
	}
	resp.Error = resp.Result.Set(ctx, sandbox.LeaseID(agent, environment))
}
