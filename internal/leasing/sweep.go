package leasing

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/ledger"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/parallel"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// strayLooks is how often something must be seen before it is destroyed: the first look may have
// raced with a ledger that is being restored.
const strayLooks = 2

// How findings about strays are resolved.
const (
	resolvedDestroyed = "destroyed by the sweep: no row wanted it"
	resolvedAway      = "it is no longer there"
	resolvedWanted    = "the ledger wants it now"
	// howToAdopt is for operators who find sandboxes of a ledger that was emptied or restored.
	howToAdopt = "this ledger never knew a sandbox and destroys nothing: take it in with `terraform-provider-sandbox reconciler adopt`, or remove it by hand"
	// olderThanInstance is for operators of a ledger that was put back by a copy.
	olderThanInstance = "this ledger is older than what it left on the instance, and destroys nothing there until `terraform-provider-sandbox reconciler adopt`"
	// newerThanBackup is for operators who find sandboxes that are newer than the backup of their ledger.
	newerThanBackup = "it is from before this ledger was restored from a backup, which does not know it: take it in with `terraform-provider-sandbox reconciler adopt`, or have it destroyed with `adopt --end`"
)

// swept is a stray after a sweep.
type swept struct {
	stray
	// kept says why it was not destroyed, "" when it was.
	kept string
}

// sweep records what no row wants, and destroys what was seen twice and is older than the grace.
// Each is its own: one that cannot be removed keeps no other. What went away, or is wanted, is
// resolved. Where anything could not be listed, nothing is destroyed and nothing is resolved.
func (v *inventory) sweep(ctx context.Context) ([]swept, error) {
	if err := errors.Join(v.unlisted, v.unread); err != nil {
		return nil, err
	}
	strays, spare, err := v.judge(ctx)
	if err != nil {
		return nil, err
	}
	if strays, err = v.record(ctx, strays, spare); err != nil {
		return nil, err
	}
	results := make([]swept, len(strays))
	for i, s := range strays {
		results[i] = swept{stray: s, kept: keep(s, spare, v.engine.now())}
	}
	return results, errors.Join(v.destroyAll(ctx, results), v.resolve(ctx, strays))
}

// sweepers bounds the removals that are under way at once.
const sweepers = 8

// destroyAll destroys what is not kept, kind by kind in the order of the list: a container goes before its volumes.
func (v *inventory) destroyAll(ctx context.Context, all []swept) error {
	var failed []error
	for len(all) > 0 {
		n := 1
		for n < len(all) && all[n].kind == all[0].kind {
			n++
		}
		failed = append(failed, parallel.Each(sweepers, all[:n], func(s *swept) error {
			if s.kept != "" {
				return nil
			}
			err := v.destroy(ctx, s.stray)
			if err != nil {
				s.kept = err.Error()
			}
			return err
		}))
		all = all[n:]
	}
	return errors.Join(failed...)
}

// spared is what the sweep must not judge.
type spared struct {
	all      bool        // the ledger never knew a sandbox: it was emptied, or is another
	behind   bool        // the ledger is older than the instance
	restored ledger.Time // when it was made of a backup: sandboxes from before may have been made after that
}

// why says why a stray is not the sweep's to destroy, "" when it is. Pure.
func (p spared) why(s stray) string {
	switch {
	case p.all && !s.ofKnown:
		return howToAdopt
	case p.behind:
		return olderThanInstance
	case s.seen.Kind == sandbox.DriftOrphan && ledger.At(s.createdAt) < p.restored:
		return newerThanBackup
	}
	return ""
}

// judge returns what no row wants, and what of it must be spared.
func (v *inventory) judge(ctx context.Context) (strays []stray, spare spared, err error) {
	err = v.engine.store.Read(ctx, func(tx *ledger.Tx) error {
		knew, err := tx.HasSandboxes()
		if err != nil {
			return err
		}
		spare.all = !knew
		known, err := tx.Witnesses().Witness(v.instance)
		if err != nil {
			return err
		}
		spare.behind = known.Behind()
		if spare.restored, err = tx.RestoredAt(); err != nil {
			return err
		}
		strays, err = v.strays(tx)
		return err
	})
	return strays, spare, err
}

// record keeps strays as findings, and returns those that no row wants still.
func (v *inventory) record(ctx context.Context, strays []stray, spare spared) ([]stray, error) {
	if len(strays) == 0 {
		return nil, nil
	}
	var kept []stray
	err := v.engine.store.Write(ctx, func(tx *ledger.Tx) error {
		kept = kept[:0]
		for _, s := range strays {
			wanted, err := v.wanted(tx, s)
			if err != nil {
				return err
			}
			if wanted {
				continue
			}
			s.seen.Resolution = spare.why(s)
			finding, isNew, err := tx.Findings().SeeDrift(s.seen)
			if err != nil {
				return err
			}
			if isNew {
				v.engine.log.Warn("leasing: found something with this ledger's label that no row wants", "kind", s.seen.Kind,
					"sandbox", s.seen.SandboxID, "environment", s.seen.EnvironmentID, "object", s.seen.Field, "state", s.seen.Observed)
			}
			s.seen = *finding
			kept = append(kept, s)
		}
		return nil
	})
	if err == nil && slices.ContainsFunc(kept, func(s stray) bool { return spare.all && !s.ofKnown }) {
		v.engine.refused.Do(func() { v.engine.log.Warn("leasing: "+howToAdopt, "ledger", v.engine.store.ID(), "found", len(kept)) })
	}
	return kept, err
}

// keep says why something that was found is not destroyed, "" when it is. Pure.
func keep(s stray, spare spared, now time.Time) string {
	why := spare.why(s)
	switch {
	case why != "":
		return why
	case s.seen.Looks < strayLooks:
		return "it was seen for the first time: the second look decides"
	case s.seen.FirstSeenAt.Time().Add(creationGrace).After(now):
		return fmt.Sprintf("it was first seen less than %s ago", creationGrace)
	}
	return ""
}

func (v *inventory) destroy(ctx context.Context, s stray) error {
	bounded, cancel := context.WithTimeout(ctx, killTimeout)
	defer cancel()
	if err := s.remove(bounded); err != nil {
		return fmt.Errorf("destroying the %s %s%s of environment %s: %w", s.seen.Kind, s.seen.SandboxID, s.seen.Field, s.seen.EnvironmentID, err)
	}
	return v.engine.store.Write(context.WithoutCancel(ctx), func(tx *ledger.Tx) error {
		return tx.Findings().ResolveFinding(s.seen.ID, resolvedDestroyed)
	})
}

// resolve closes the findings about what is a stray no longer.
func (v *inventory) resolve(ctx context.Context, strays []stray) error {
	still := make(map[int64]bool, len(strays))
	for _, s := range strays {
		still[s.seen.ID] = true
	}
	resolved := make(map[int64]string)
	for _, f := range v.open {
		if (f.Kind != sandbox.DriftOrphan && f.Kind != sandbox.DriftLeftover) || still[f.ID] || v.unanswered(f.EnvironmentID) != nil {
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
	return v.engine.store.Write(ctx, func(tx *ledger.Tx) error {
		for id, how := range resolved {
			if err := tx.Findings().ResolveFinding(id, how); err != nil {
				return err
			}
		}
		return nil
	})
}
