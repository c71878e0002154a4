package orphans

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/ledger"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/ledger/drift"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/ledger/micro"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/ledger/witnesses"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/parallel"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// looks is how often an orphan must be seen before it is destroyed: the first look may have raced with a
// restore of the ledger.
const looks = 2

// Resolutions of findings about orphans.
const (
	resolvedDestroyed = "destroyed by a resync: it was an orphan"
	resolvedAway      = "it no longer exists"
	resolvedWanted    = "the ledger wants it now"
	// howToAdopt is advice for operators of a ledger that was emptied or restored.
	howToAdopt = "this ledger never had a sandbox and destroys nothing: adopt it with " +
		"`sandbox adopt`, or remove it by hand"
	// olderThanInstance is advice for operators of a ledger that was replaced by an older copy.
	olderThanInstance = "this ledger is older than its sandboxes on the instance, and destroys nothing there before " +
		"`sandbox adopt`"
	// newerThanBackup is advice for operators who find sandboxes that are newer than the restored backup.
	newerThanBackup = "it was created before this ledger was restored from a backup that does not contain it: adopt it " +
		"with `sandbox adopt`, or destroy it with `adopt --end`"
)

// judged is an orphan after a collection.
type judged struct {
	orphan
	// kept says why it was not destroyed, "" if it was.
	kept string
}

// Collect records orphans, and destroys those that were seen twice and are older than the grace period. EachPage must
// have read the rows. A removal that fails does not stop the others. It resolves findings about objects that
// disappeared or are now wanted. If anything could not be listed, it destroys and resolves nothing. It returns the
// findings with their actions.
func (v *Inventory) Collect(ctx context.Context) ([]sandbox.SweepFinding, error) {
	if err := errors.Join(v.unlisted, v.unread); err != nil {
		return nil, err
	}
	found, spare, err := v.judge(ctx)
	if err != nil {
		return nil, err
	}
	if found, err = v.record(ctx, found, spare); err != nil {
		return nil, err
	}
	all := make([]judged, len(found))
	for i, s := range found {
		all[i] = judged{orphan: s, kept: keep(s, spare, v.service.store.Now())}
	}
	err = errors.Join(v.destroyAll(ctx, all), v.resolve(ctx, found))
	return findings(all), err
}

// Preview is Collect as a dry run: it writes and destroys nothing.
func (v *Inventory) Preview(ctx context.Context) ([]sandbox.SweepFinding, error) {
	if err := errors.Join(v.unlisted, v.unread); err != nil {
		return nil, err
	}
	found, spare, err := v.judge(ctx)
	all := make([]judged, len(found))
	now := v.service.store.Now()
	for i, s := range found {
		s.seen.Looks, s.seen.FirstSeenAt = 1, micro.At(now)
		for _, f := range v.open {
			if f.Kind == s.seen.Kind && f.SandboxID == s.seen.SandboxID && f.Field == s.seen.Field {
				s.seen.Looks, s.seen.FirstSeenAt = f.Looks+1, f.FirstSeenAt
			}
		}
		all[i] = judged{orphan: s, kept: keep(s, spare, now)}
	}
	return findings(all), err
}

func (s *judged) finding() sandbox.SweepFinding {
	f := sandbox.SweepFinding{
		Kind: s.seen.Kind, SandboxID: s.seen.SandboxID, LeaseID: s.seen.LeaseID, EnvironmentID: s.seen.EnvironmentID,
		Field: s.seen.Field, Expected: s.seen.Expected, Observed: s.seen.Observed,
		CreatedAt: s.createdAt, FirstSeenAt: s.seen.FirstSeenAt.Time(), Action: sandbox.SweepDestroy, Why: s.kept,
	}
	if s.kept != "" {
		f.Action = sandbox.SweepKeep
	}
	return f
}

func findings(all []judged) []sandbox.SweepFinding {
	found := make([]sandbox.SweepFinding, len(all))
	for i := range all {
		found[i] = all[i].finding()
	}
	return found
}

// removals limits concurrent removals.
const removals = 8

// destroyAll destroys orphans that are not kept, kind by kind in list order: a container before its volumes.
func (v *Inventory) destroyAll(ctx context.Context, all []judged) error {
	var failed []error
	for len(all) > 0 {
		n := 1
		for n < len(all) && all[n].kind == all[0].kind {
			n++
		}
		failed = append(failed, parallel.Each(removals, all[:n], func(s *judged) error {
			if s.kept != "" {
				return nil
			}
			wanted, err := v.wantedNow(ctx, s.orphan)
			if err == nil && wanted {
				s.kept = resolvedWanted
				return nil
			}
			if err == nil {
				err = v.destroy(ctx, s.orphan)
			}
			if err != nil {
				s.kept = err.Error()
			}
			return err
		}))
		all = all[n:]
	}
	return errors.Join(failed...)
}

// spared says what a collection must not destroy.
type spared struct {
	all    bool       // the ledger never had a sandbox: it was emptied, or is a new one
	behind bool       // the ledger is older than the instance
	before micro.Time // older sandboxes may be newer than the backup that was restored
}

// why says why an orphan must not be destroyed, "" if it may be. It is a pure function.
func (p spared) why(s orphan) string {
	switch {
	case p.all && !s.ofKnown:
		return howToAdopt
	case p.behind:
		return olderThanInstance
	case s.seen.Kind == sandbox.DriftOrphan && micro.At(s.createdAt) < p.before:
		return newerThanBackup
	}
	return ""
}

// judge returns the orphans, and which of them must be spared.
func (v *Inventory) judge(ctx context.Context) (found []orphan, spare spared, err error) {
	err = v.service.store.Read(ctx, func(tx *ledger.Tx) error {
		knew, err := tx.HasSandboxes()
		if err != nil {
			return err
		}
		spare.all = !knew
		known, err := witnesses.In(tx).Of(v.instance)
		if err != nil {
			return err
		}
		spare.behind = known.Behind()
		if spare.before, err = tx.UnknownBefore(); err != nil {
			return err
		}
		found, err = v.orphans(tx)
		return err
	})
	return found, spare, err
}

// record stores orphans as findings, and returns those that are still orphans.
func (v *Inventory) record(ctx context.Context, found []orphan, spare spared) ([]orphan, error) {
	if len(found) == 0 {
		return nil, nil
	}
	var kept []orphan
	err := v.service.store.Write(ctx, func(tx *ledger.Tx) error {
		kept = kept[:0]
		for _, s := range found {
			wanted, err := v.wanted(tx, s)
			if err != nil {
				return err
			}
			if wanted {
				continue
			}
			s.seen.Resolution = spare.why(s)
			finding, isNew, err := drift.In(tx).See(s.seen)
			if err != nil {
				return err
			}
			if isNew {
				v.service.log.Warn("orphans: found an object with this ledger's label that no row wants", "kind", s.seen.Kind,
					"sandbox", s.seen.SandboxID, "environment", s.seen.EnvironmentID, "object", s.seen.Field, "state", s.seen.Observed)
			}
			s.seen = *finding
			kept = append(kept, s)
		}
		return nil
	})
	if err == nil && slices.ContainsFunc(kept, func(s orphan) bool { return spare.all && !s.ofKnown }) {
		v.service.refused.Do(func() {
			v.service.log.Warn("orphans: "+howToAdopt, "ledger", v.service.store.ID(), "found", len(kept))
		})
	}
	return kept, err
}

// keep says why a found orphan is not destroyed, "" if it is. It is a pure function.
func keep(s orphan, spare spared, now time.Time) string {
	why := spare.why(s)
	switch {
	case why != "":
		return why
	case s.seen.Looks < looks:
		return "it was seen for the first time and may be destroyed at the next resync"
	case s.seen.FirstSeenAt.Time().Add(creationGrace).After(now):
		return fmt.Sprintf("it was first seen less than %s ago", creationGrace)
	}
	return ""
}

// wantedNow reports whether a row wants an orphan by now: it may have been adopted while others were destroyed.
func (v *Inventory) wantedNow(ctx context.Context, s orphan) (wanted bool, err error) {
	err = v.service.store.Read(ctx, func(tx *ledger.Tx) (err error) {
		wanted, err = v.wanted(tx, s)
		return err
	})
	return wanted, err
}

func (v *Inventory) destroy(ctx context.Context, s orphan) error {
	bounded, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	if err := s.remove(bounded); err != nil {
		return fmt.Errorf("destroying the %s %s%s of environment %s: %w",
			s.seen.Kind, s.seen.SandboxID, s.seen.Field, s.seen.EnvironmentID, err)
	}
	return v.service.store.Write(context.WithoutCancel(ctx), func(tx *ledger.Tx) error {
		return drift.In(tx).Resolve(s.seen.ID, resolvedDestroyed)
	})
}

// resolve closes findings about objects that are no longer orphans.
func (v *Inventory) resolve(ctx context.Context, found []orphan) error {
	still := make(map[int64]bool, len(found))
	for _, s := range found {
		still[s.seen.ID] = true
	}
	resolved := make(map[int64]string)
	for _, f := range v.open {
		if (f.Kind != sandbox.DriftOrphan && f.Kind != sandbox.DriftLeftover) || still[f.ID] ||
			v.unanswered(f.EnvironmentID) != nil {
			continue
		}
		resolved[f.ID] = resolvedAway
		if v.present(f) {
			resolved[f.ID] = resolvedWanted
		}
	}
	if len(resolved) == 0 {
		return nil
	}
	return v.service.store.Write(ctx, func(tx *ledger.Tx) error {
		for id, how := range resolved {
			if err := drift.In(tx).Resolve(id, how); err != nil {
				return err
			}
		}
		return nil
	})
}
