package commands

import (
	"slices"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/ledger"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/ledger/accounting"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/ledger/execs"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/ledger/micro"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// underStop returns when and why a command failed with runErr. If its sandbox no longer knows the command because it
// stopped meanwhile, these are the time of the stop and an error that says so. Otherwise they are the present and
// runErr.
func underStop(tx *ledger.Tx, x *execs.Exec, runErr error) (micro.Time, error, error) {
	if sandbox.ReasonOf(runErr) != sandbox.ReasonExecNotFound {
		return tx.Now, runErr, nil
	}
	periods, err := accounting.In(tx).PeriodsOf([]string{x.SandboxID})
	if err != nil {
		return tx.Now, runErr, err
	}
	var next accounting.UsagePeriod
	for _, p := range slices.Backward(periods) { // the sandbox's latest awake period
		ran := p.State == sandbox.PhaseAwake && p.EndedAt != 0
		ran = ran && (next.State != p.State || next.StartedAt != p.EndedAt) // midnight divides a period: it still ran
		if next = p; !ran {
			continue
		}
		if p.EndedAt < x.StartedAt {
			break
		}
		return p.EndedAt, sandbox.Errorf(sandbox.Failed,
			"its sandbox stopped while it ran: its files are kept, its processes are not").
			WithReason(sandbox.ReasonExecFailed), nil
	}
	return tx.Now, runErr, nil
}
