package environment

import (
	"context"
	"fmt"
	"time"

	"github.com/hashicorp/terraform-plugin-framework/diag"

	"github.com/sandbox-lease/terraform-provider-sandbox/provider/configured"
	"github.com/sandbox-lease/terraform-provider-sandbox/provider/news"
	"github.com/sandbox-lease/terraform-provider-sandbox/provider/value"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// endNotice warns that the environment has ended since the last refresh, and names the leases that ended with it. These
// leases then give no warnings of their own.
func (r *Resource) endNotice(ctx context.Context, svc configured.Service, env sandbox.Environment,
	since time.Time) diag.Diagnostics {
	with := ""
	siblings, _ := r.Provider.Siblings(ctx, svc, env.ID) // empty after an error: each lease then reports its own end
	ended := r.Provider.Untold(string(news.Ended), "", news.Of(news.Ended, siblings, since, env.Owner))
	if len(ended) > 0 {
		with = fmt.Sprintf(" %s. %s", news.Summary(ended, since), news.Saved)
	}
	return diag.Diagnostics{diag.NewWarningDiagnostic(fmt.Sprintf("Environment %s Ended", env.ID), fmt.Sprintf(
		"Environment %s ended at %s by %s and grants no more leases. Expected; this is not drift, and nothing is "+
			"planned for it. To reopen it, raise its epoch to %d. Its leases with on_expiry = \"recreate\" follow. Kept ones "+
			"follow if their lifecycle has replace_triggered_by = [sandbox_environment.<name>.epoch], or with -replace.%s",
		env.ID, value.Time(env.EndedAt).ValueString(), env.EndedBy, env.Epoch+1, with))}
}
