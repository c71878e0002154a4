package lease

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/hashicorp/terraform-plugin-framework/diag"

	"github.com/sandbox-lease/terraform-provider-sandbox/provider/configured"
	"github.com/sandbox-lease/terraform-provider-sandbox/provider/news"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// fold returns the warning about one lease. If the same happened to more leases of its environment, it returns one
// warning about all of them. A run reports each lease once.
func (r *Resource) fold(ctx context.Context, svc configured.Service, l sandbox.Lease, since time.Time,
	n notice) diag.Diagnostics {
	if n.kind == "" || l.EndedBy == sandbox.EndedByRelease {
		return diag.Diagnostics{n}
	}
	siblings, err := r.Provider.Siblings(ctx, svc, l.EnvironmentID)
	all := news.Of(n.kind, siblings, since, l.Owner)
	if err != nil || !slices.ContainsFunc(all, func(other sandbox.Lease) bool { return other.ID == l.ID }) {
		all = []sandbox.Lease{l} // do not count unknown leases
	}
	switch all = r.Provider.Untold(string(n.kind), l.ID, all); len(all) {
	case 0:
		return nil
	case 1:
		return diag.Diagnostics{n}
	default:
		return diag.Diagnostics{folded(n.kind, l.EnvironmentID, all, since)}
	}
}

func folded(kind news.Kind, environment string, all []sandbox.Lease, since time.Time) diag.Diagnostic {
	const more = "The data source sandbox_leases has the reason of each."
	switch kind {
	case news.Ended:
		return diag.NewWarningDiagnostic(fmt.Sprintf("%d Leases Of Environment %s Ended", len(all), environment),
			fmt.Sprintf("%s. Expected; this is not drift. Nothing is planned where on_expiry is keep. Where it is "+
				"recreate, the next generation is planned, unless a warning says that the lease waits. Kept leases return with "+
				"terraform apply -replace, or with each new epoch if their lifecycle has replace_triggered_by = "+
				"[sandbox_environment.<name>.epoch]. %s %s",
				news.Summary(all, since), more, news.Saved))
	case news.EndedWithEnvironment:
		return diag.NewWarningDiagnostic(fmt.Sprintf("%d Leases Ended With Environment %s", len(all), environment),
			fmt.Sprintf("%s. The environment was removed. %s %s %s", news.Summary(all, since), withEnvironment, more,
				news.Saved))
	case news.Gone:
		return diag.NewWarningDiagnostic(fmt.Sprintf("%d Leases Of Environment %s Vanished Or Failed", len(all), environment),
			fmt.Sprintf("%s. They are dropped from Terraform's state, and the next apply leases them again. %s",
				news.Summary(all, since), more))
	default:
		var agents []string
		for _, l := range all {
			agents = append(agents, fmt.Sprintf("%s (%s)", l.AgentDID, l.Drift[0].Field))
		}
		return diag.NewWarningDiagnostic(
			fmt.Sprintf("%d Leases Of Environment %s Changed Outside Of Terraform", len(all), environment),
			fmt.Sprintf("The sandboxes of %d leases are not as they were leased: %s. Nothing is planned for them. A sandbox "+
				"that stopped is started again in place; to get one as configured, lease it again with terraform apply -replace. "+
				"The data source sandbox_drift has what was expected and observed.", len(all), news.Names(agents)))
	}
}
