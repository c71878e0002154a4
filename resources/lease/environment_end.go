package lease

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"github.com/hashicorp/terraform-plugin-framework/diag"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/service"
	"github.com/sandbox-lease/terraform-provider-sandbox/provider/configured"
	"github.com/sandbox-lease/terraform-provider-sandbox/provider/diagnose"
	"github.com/sandbox-lease/terraform-provider-sandbox/provider/news"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// environmentEnd records the environment's status at the last refresh, for a lease that has ended: whether the
// environment had ended or was gone, and whether its budget was spent. Terraform plans again as it applies, and the
// second plan must equal the first. So both use the state, never the environment's current status.
type environmentEnd struct {
	// Gone is set if the environment does not exist any more, or is being destroyed.
	Gone bool `json:"gone,omitempty"`
	// By is the last condition that ended the environment. It is empty while the environment is open.
	By string `json:"by,omitempty"`
	// All conditions that ended it.
	All   []string `json:"all,omitempty"`
	Epoch int64    `json:"epoch"`
	// Conditions end a lease that names no conditions itself.
	Conditions []string `json:"conditions,omitempty"`
	// Spent is set if the budget of the month is spent.
	Spent *sandbox.BudgetUse `json:"spent,omitempty"`
}

// endOf returns the status of an environment.
func endOf(env sandbox.Environment) environmentEnd {
	end := environmentEnd{Epoch: env.Epoch}
	switch env.Status {
	case sandbox.EnvironmentClosed:
		end.By, end.All, end.Conditions = env.EndedBy, env.EndConditions, env.WithDefaults().ExpiryConditions
	case sandbox.EnvironmentDeleting, sandbox.EnvironmentDestroyed:
		end.Gone = true
	}
	if env.BudgetUse != nil && env.BudgetUse.Reached(100) {
		end.Spent = env.BudgetUse
	}
	return end
}

const environmentEndKey = "environment_end"

// ends returns the condition by which the environment's end also ends a lease with these settings, so that no next
// generation follows.
func (e environmentEnd) ends(settings sandbox.LeaseSettings) (by string, ok bool) {
	conditions := e.Conditions
	if len(settings.ExpiryConditions) > 0 {
		conditions = settings.ExpiryConditions
	}
	all := e.All
	if len(all) == 0 && e.By != "" { // from an older reconciler
		all = []string{e.By}
	}
	at := slices.IndexFunc(all, func(by string) bool { return slices.Contains(conditions, by) })
	if at < 0 {
		return "", false
	}
	return all[at], true
}

// afford reports whether the environment's budget allows new leases. planned is the environment's budget in the current
// plan; isPlanned is false if that plan does not include the environment. A raised budget may still not cover the next
// hour of a lease; the apply then fails.
func (e environmentEnd) afford(planned configured.PlannedBudget, isPlanned bool) outlook {
	switch {
	case e.Spent == nil:
		return returns
	case !isPlanned:
		return waits
	case planned.Unknown:
		return unknown
	case planned.Monthly == 0 || planned.Monthly > e.Spent.Spent:
		return returns
	default:
		return waits
	}
}

// spentNotice says why the environment's leases wait, and until when.
func (e environmentEnd) spentNotice(environmentID, leaseID string) string {
	until := "the next month"
	if month, err := time.Parse("2006-01", e.Spent.Month); err == nil {
		until = month.AddDate(0, 1, 0).Format(time.DateOnly) + " (UTC)"
	}
	return fmt.Sprintf("Environment %s has spent $%s of its budget of $%s for %s, and grants no leases until %s. "+
		"Nothing is planned for its leases whose on_expiry is recreate, such as %s. Raise budget.monthly_usd: the same "+
		"apply leases their sandboxes again. A plan from %s on does so too.",
		environmentID, e.Spent.Spent, e.Spent.Monthly, e.Spent.Month, until, leaseID, until)
}

// keepEnvironmentEnd stores the environment's status.
func (r *Resource) keepEnvironmentEnd(ctx context.Context, svc service.Environments, id string,
	in news.Private) diag.Diagnostics {
	env, err := r.Provider.Environment(ctx, svc, id)
	if err != nil && sandbox.CodeOf(err) != sandbox.NotFound {
		return diagnose.Failed("Reading Lease Failed", err, nil)
	}
	end := endOf(env)
	end.Gone = end.Gone || err != nil
	value, err := json.Marshal(end)
	if err != nil {
		panic(err) // texts and a number always encode
	}
	return in.SetKey(ctx, environmentEndKey, value)
}

// keptEnvironmentEnd returns the status from the last refresh. Without one, the environment counts as open.
func keptEnvironmentEnd(ctx context.Context, in news.Private) (end environmentEnd, diags diag.Diagnostics) {
	value, diags := in.GetKey(ctx, environmentEndKey)
	if len(value) == 0 || diags.HasError() {
		return end, diags
	}
	if err := json.Unmarshal(value, &end); err != nil {
		diags.Append(diagnose.Failed("Planning Lease Failed",
			fmt.Errorf("read what the state keeps of the environment's end: %w. Run terraform refresh", err), nil)...)
	}
	return end, diags
}
