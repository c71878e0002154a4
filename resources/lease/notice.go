package lease

import (
	"fmt"
	"slices"
	"strings"

	"github.com/hashicorp/terraform-plugin-framework/diag"

	"github.com/sandbox-lease/terraform-provider-sandbox/provider/news"
	"github.com/sandbox-lease/terraform-provider-sandbox/provider/value"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// A plan of Terraform shows only values that feed a change, so warnings report what happened to a lease. Each has its
// own summary, because Terraform folds warnings with equal summaries.

// notice is a warning about one lease.
type notice struct {
	diag.Diagnostic
	// kind is equal in warnings about leases of one environment that are folded into one. "" is never folded.
	kind news.Kind
}

func warning(kind news.Kind, summary, detail string) notice {
	return notice{Diagnostic: diag.NewWarningDiagnostic(summary, detail), kind: kind}
}

// vanished reports whether the lease in the state is gone although no rule ended it. It also returns the warning.
func vanished(l sandbox.Lease, err error, m *Model) (notice, bool) {
	const next = "It is dropped from Terraform's state, and the next apply leases it again."
	id, generation := m.ID.ValueString(), m.Generation.ValueInt64()
	was := fmt.Sprintf("lease %s (generation %d, sandbox %s, last known status %s)",
		id, generation, m.SandboxID.ValueString(), m.Status.ValueString())
	switch {
	case sandbox.CodeOf(err) == sandbox.NotFound:
		return warning("", fmt.Sprintf("Lease %s Vanished", id),
			fmt.Sprintf("The ledger has no %s: %s. %s", was, err, next)), true
	case err != nil:
		return notice{}, false
	case !m.Owner.IsNull() && l.Owner != m.Owner.ValueString():
		return warning("", fmt.Sprintf("Lease %s Taken Over", id),
			fmt.Sprintf("The %s is over: its generation %d has been held by another owner, %s, since %s. It is dropped from "+
				"Terraform's state; an apply can lease it again once that owner has released it.",
				was, l.Generation, l.Owner, value.Time(l.LeasedAt).ValueString())), true
	case !l.EndedAt.IsZero() && !l.EndedBy.EndedByRules():
		return warning(news.Gone, fmt.Sprintf("Lease %s %s", id, title(l.EndedBy)),
			fmt.Sprintf(
				"Lease %s (generation %d, sandbox %s) ended at %s as %s: %s. It was last seen at %s and had cost $%s. %s",
				id, l.Generation, l.SandboxID, value.Time(l.EndedAt).ValueString(), l.EndedBy, reason(l), lastSeen(l), l.Cost, next,
			)), true
	default:
		return notice{}, false
	}
}

// notices returns the warnings about a lease that stays in the state: that it has ended since the last refresh, that it
// has a new generation, and how its backend differs.
func notices(l sandbox.Lease, m *Model) []notice {
	var all []notice
	if was := m.Generation.ValueInt64(); was != 0 && l.Generation != was {
		all = append(all, warning("", fmt.Sprintf("Lease %s Leased Again", l.ID), fmt.Sprintf(
			"Lease %s is in generation %d; Terraform knew generation %d. Its owner leased it again outside of this "+
				"configuration, at %s. The state follows.", l.ID, l.Generation, was, value.Time(l.LeasedAt).ValueString())))
	}
	switch {
	case !l.EndedAt.IsZero() && (!m.ended() || m.Generation.ValueInt64() != l.Generation):
		all = append(all, endNotice(l, m))
	case l.EndedAt.IsZero() && len(l.Drift) > 0: // findings about an ended lease change nothing
		all = append(all, warning(news.Changed, fmt.Sprintf("Lease %s Changed Outside Of Terraform", l.ID), fmt.Sprintf(
			"Findings about sandbox %s of lease %s:\n\n%s\n\nNothing is planned for it. %s",
			l.SandboxID, l.ID, findings(l.Drift), remedy(l))))
	}
	return all
}

// withEnvironment says what Terraform plans for a lease whose environment was removed.
const withEnvironment = "If the plan creates the environment again, it replaces each lease that refers to its id. " +
	"For any other lease, nothing is planned if on_expiry is keep. If it is recreate, its next generation is planned " +
	"once the environment exists again."

// endNotice reports an end by the rules.
func endNotice(l sandbox.Lease, m *Model) notice {
	next := "Expected; this is not drift. Nothing is planned for it, because on_expiry is keep. Destroy it, set " +
		"on_expiry to recreate, or lease it again with terraform apply -replace. If its environment ended too, raise the " +
		"environment's epoch in the same apply."
	kind := news.OfEnd(l.EndedBy)
	switch {
	case kind == news.EndedWithEnvironment:
		next = withEnvironment
	case m.OnExpiry.ValueString() == onExpiryRecreate:
		next = "Expected; this is not drift. Its next generation is planned, because on_expiry is recreate, unless a " +
			"warning says that it waits."
	}
	return warning(kind, fmt.Sprintf("Lease %s Ended", l.ID), fmt.Sprintf(
		"Lease %s (generation %d) ended at %s by %s: %s. It cost $%s. %s",
		l.ID, l.Generation, value.Time(l.EndedAt).ValueString(), l.EndedBy, reason(l), l.Cost, next))
}

// remedy says what happens about the findings.
func remedy(l sandbox.Lease) string {
	var says []string
	add := func(text string) {
		if !slices.Contains(says, text) {
			says = append(says, text)
		}
	}
	for _, f := range l.Drift {
		switch {
		case f.Kind == sandbox.DriftChanged && f.Field == "state":
			add("The lease follows: a paused sandbox goes on at its next use.")
		case f.Kind == sandbox.DriftChanged:
			add("To get it as configured, lease it again with terraform apply -replace.")
		case l.Phase == sandbox.PhaseAwake:
			add("It was started again in place and runs; what its programs had in memory is lost.")
		case f.Expected != string(sandbox.StateRunning):
			add("It starts again in place at its next use.")
		default:
			add("A reconciler starts it again in place. Without one, run sandbox serve, or lease it again with terraform " +
				"apply -replace.")
		}
	}
	return strings.Join(says, " ")
}

func findings(drift []sandbox.DriftFinding) string {
	var lines []string
	for _, f := range drift {
		lines = append(lines, fmt.Sprintf("  - %s: expected %s, observed %s; first seen at %s",
			f.Field, f.Expected, f.Observed, value.Time(f.FirstSeenAt).ValueString()))
	}
	return strings.Join(lines, "\n")
}

// reason says why a lease ended.
func reason(l sandbox.Lease) string {
	if l.PurgedAt.IsZero() {
		return l.EndReason
	}
	return "the ledger purged the details at " + value.Time(l.PurgedAt).ValueString()
}

func lastSeen(l sandbox.Lease) string {
	if !l.PurgedAt.IsZero() {
		return value.Time(l.EndedAt).ValueString()
	}
	if l.ObservedAt.IsZero() {
		return value.Time(l.LastActivity).ValueString()
	}
	return value.Time(l.ObservedAt).ValueString()
}

func title(by sandbox.EndedBy) string {
	return strings.ToUpper(string(by[:1])) + string(by[1:])
}
