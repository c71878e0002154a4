// Package news reports what happened to many leases of an environment in one warning. Terraform reads each lease
// separately, and would otherwise show a warning for each.
package news

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/sandbox-lease/terraform-provider-sandbox/provider/configured"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// Kind is what happened to a lease.
type Kind string

const (
	// Ended by the rules, in an environment that still exists.
	Ended Kind = "ended"
	// EndedWithEnvironment means ended by the removal of the environment.
	EndedWithEnvironment Kind = "ended with the environment"
	// Gone means ended in any other way, which is drift.
	Gone Kind = "gone"
	// Changed on the backend, while the lease is active.
	Changed Kind = "changed"
)

// named is how many leases a warning names.
const named = 3

// Of returns the leases to which kind happened after since. It considers leases of Terraform objects and of this owner.
// It omits leases that Terraform itself released.
func Of(kind Kind, leases []sandbox.Lease, since time.Time, owner string) []sandbox.Lease {
	var found []sandbox.Lease
	for _, l := range leases {
		ours := strings.HasPrefix(l.Owner, configured.OwnerPrefix) || l.Owner == owner
		if ours && happened(kind, l) && (kind == Changed || l.EndedAt.After(since)) {
			found = append(found, l)
		}
	}
	return found
}

func happened(kind Kind, l sandbox.Lease) bool {
	switch ended := !l.EndedAt.IsZero(); kind {
	case Ended, EndedWithEnvironment:
		return ended && l.EndedBy != sandbox.EndedByRelease && OfEnd(l.EndedBy) == kind
	case Gone:
		return ended && OfEnd(l.EndedBy) == Gone
	default:
		return !ended && len(l.Drift) > 0
	}
}

// OfEnd returns the kind of an end.
func OfEnd(by sandbox.EndedBy) Kind {
	switch {
	case by == sandbox.EndedByEnvironment:
		return EndedWithEnvironment
	case by.EndedByRules():
		return Ended
	default:
		return Gone
	}
}

// Summary counts leases, names the first of them, and adds up the cost of the ended ones: "100 leases ended since
// 2026-11-24T12:00:00Z (98 by condition, 2 by ttl) and cost $1.20: did:plc:a, did:plc:b, did:plc:c and 97 more".
func Summary(leases []sandbox.Lease, since time.Time) string {
	by, order := map[sandbox.EndedBy]int{}, []sandbox.EndedBy{}
	var cost sandbox.NanoUSD
	var agents []string
	for _, l := range leases {
		if by[l.EndedBy]++; by[l.EndedBy] == 1 {
			order = append(order, l.EndedBy)
		}
		cost += l.Cost
		agents = append(agents, l.AgentDID)
	}
	slices.SortFunc(order, func(a, b sandbox.EndedBy) int { return by[b] - by[a] })
	var causes []string
	for _, cause := range order {
		causes = append(causes, fmt.Sprintf("%d by %s", by[cause], cause))
	}
	what := fmt.Sprintf("%d leases", len(leases))
	if len(leases) == 1 {
		what = "1 lease"
	}
	return fmt.Sprintf("%s ended since %s (%s) and cost $%s: %s", what, since.UTC().Format(time.RFC3339),
		strings.Join(causes, ", "), cost, Names(agents))
}

// Names returns the first names, and how many more there are.
func Names(all []string) string {
	if len(all) <= named+1 {
		return strings.Join(all, ", ")
	}
	return fmt.Sprintf("%s and %d more", strings.Join(all[:named], ", "), len(all)-named)
}
