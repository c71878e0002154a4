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

func flattenDrift(drift []sandbox.DriftFinding) types.List {
	all := make([]attr.Value, len(drift))
	for i, f := range drift {
		all[i] = types.StringValue(fmt.Sprintf("%s: expected %s, observed %s", f.Field, f.Expected, f.Observed))
	}
	return types.ListValueMust(types.StringType, all)
}

// driftNotice warns of what others have changed, and says what apply does about it.
func driftNotice(env sandbox.Environment) diag.Diagnostics {
	if len(env.Drift) == 0 {
		return nil
	}
	var lines []string
	for _, f := range env.Drift {
		lines = append(lines, fmt.Sprintf("  - %s: expected %s, observed %s; first seen at %s", f.Field, f.Expected, f.Observed, value.Time(f.FirstSeenAt).ValueString()))
	}
	return diag.Diagnostics{diag.NewWarningDiagnostic(fmt.Sprintf("Environment %s Changed Outside Of Terraform", env.ID), fmt.Sprintf(
		"What environment %s is deployed with is not as configured:\n\n%s\n\nThe next apply deploys it again, as configured. Sandboxes that run go on.",
		env.ID, strings.Join(lines, "\n")))}
}
