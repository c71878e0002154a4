package lease

import (
	"context"
	"fmt"

	"github.com/hashicorp/terraform-plugin-framework/diag"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/service"
	"github.com/sandbox-lease/terraform-provider-sandbox/provider/diagnose"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// renewFailed returns the error of a failed renewal. next says what to do if the lease has ended.
func renewFailed(ctx context.Context, svc service.Leases, summary, id, next string, err error) diag.Diagnostics {
	if sandbox.CodeOf(err) != sandbox.LeaseEnded {
		return diagnose.Failed(summary, err, paths)
	}
	why := ""
	if l, unknown := svc.GetLease(ctx, id); unknown == nil && !l.EndedAt.IsZero() {
		why = fmt.Sprintf(" by %s: %s", l.EndedBy, reason(l))
	}
	return diag.Diagnostics{diag.NewErrorDiagnostic(summary, fmt.Sprintf("Lease %s ended%s. %s", id, why, next))}
}
