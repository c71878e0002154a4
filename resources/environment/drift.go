package environment

import (
	"fmt"
	"strings"

	"github.com/hashicorp/terraform-plugin-framework/attr"
	"github.com/hashicorp/terraform-plugin-framework/diag"
	"github.com/hashicorp/terraform-plugin-framework/types"

	"github.com/sandbox-lease/terraform-provider-sandbox/provider/value"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// flattenDrift omits drift that no apply resolves; keptNotice reports it.
func flattenDrift(drift []sandbox.DriftFinding) types.List {
	all := []attr.Value{}
	for _, f := range drift {
		if !f.Kept() {
			all = append(all, types.StringValue(fmt.Sprintf("%s: expected %s, observed %s", f.Field, f.Expected, f.Observed)))
		}
	}
	return types.ListValueMust(types.StringType, all)
}

// driftNotice warns about changes made outside Terraform, and says what apply does about them.
func driftNotice(env sandbox.Environment) diag.Diagnostics {
	var lines []string
	for _, f := range env.Drift {
		if f.Kept() {
			continue
		}
		lines = append(lines, fmt.Sprintf("  - %s: expected %s, observed %s; first seen at %s",
			f.Field, f.Expected, f.Observed, value.Time(f.FirstSeenAt).ValueString()))
	}
	if len(lines) == 0 {
		return nil
	}
	return diag.Diagnostics{diag.NewWarningDiagnostic(fmt.Sprintf("Environment %s Changed Outside Of Terraform", env.ID),
		fmt.Sprintf("What environment %s is deployed with is not as configured:\n\n%s\n\nThe next apply deploys it again, "+
			"as configured. Sandboxes that run go on.", env.ID, strings.Join(lines, "\n")))}
}

// keptNotice warns about settings that an environment keeps from its creation.
func keptNotice(env sandbox.Environment) (diags diag.Diagnostics) {
	for _, f := range env.Drift {
		if f.Kept() {
			diags.AddWarning(fmt.Sprintf("Environment %s Keeps Its Scheduling Policy", env.ID), fmt.Sprintf(
				"Environment %s was made with the scheduling policy %s, and would be made with %s now. Cloudflare does not change "+
					"the policy of an application, so the environment keeps it; nothing is planned for it. To move it, replace the "+
					"environment, which ends its sandboxes:\n\n"+
					"  terraform apply -replace=ADDRESS",
				env.ID, f.Observed, f.Expected))
		}
	}
	return diags
}
