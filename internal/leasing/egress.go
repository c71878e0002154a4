package leasing

import (
	"context"
	"fmt"
	"time"

	"golang.org/x/time/rate"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/ledger"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/sandbox"
)

// What restricted sandboxes try to reach becomes events. A gateway keeps its log for some time, and the
// ledger says how far it has been recorded: events and place change in one transaction, so that each
// line counts once, whoever reads it and whenever they die.

// A sandbox has egressBurst attempts recorded one by one, and then one every egressEvery. What is beyond
// that is counted, in one event of a reading, so that a sandbox that knocks thousands of times a second
// costs the ledger no more than a few rows.
const (
	egressBurst = 300
	egressEvery = 2 * time.Second
	// egressTimeout bounds the reading of one gateway's log, egressLines how much of it is recorded at once.
	egressTimeout = 20 * time.Second
	egressLines   = 10_000
	// egressReaders bounds the logs that are read at once.
	egressReaders = 8
	// egressLimiters is how many sandboxes' rates are remembered before those at rest are forgotten.
	egressLimiters = 1000
)

// CollectEgress records what the gateways of a backend's instance have logged since. Any number of
// engines may do so at once. A gateway that does not answer keeps no other from being read.
func (e *Engine) CollectEgress(ctx context.Context, b sandbox.Backend) error {
	x, err := e.backendFor(b)
	if err != nil {
		return err
	}
	instance, err := x.reach(ctx)
	if err != nil {
		return err
	}
	refs, err := x.EgressLogs(ctx, e.store.ID())
	if err != nil {
		return err
	}
	return atOnce(egressReaders, refs, func(ref *sandbox.EnvironmentRef) error {
		for more := ref.Instance == instance; more && ctx.Err() == nil; {
			var err error
			if more, err = e.collectEgress(ctx, x, *ref); err != nil {
				return fmt.Errorf("what sandboxes of environment %s tried to reach: %w", ref.EnvironmentID, err)
			}
		}
		return nil
	})
}

// collectEgress records a part of a gateway's log, and reports whether there may be more.
func (e *Engine) collectEgress(ctx context.Context, x *backend, ref sandbox.EnvironmentRef) (more bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, egressTimeout)
	defer cancel()
	var cursor ledger.EgressCursor
	err = e.store.Read(ctx, func(tx *ledger.Tx) (err error) {
		cursor, err = tx.EgressCursor(ref.Instance, ref.EnvironmentID)
		return err
	})
	if err != nil {
		return false, err
	}
	var lines []sandbox.EgressRecord
	for at := cursor.Position(); len(lines) < egressLines; {
		page, err := x.EgressLog(ctx, ref, at)
		if err != nil {
			return false, err
		}
		if len(page) == 0 {
			break
		}
		lines = append(lines, page...)
		at = page[len(page)-1].EgressPosition
	}
	if len(lines) == 0 {
		return false, nil
	}
	err = e.store.Write(ctx, func(tx *ledger.Tx) error { return e.recordEgress(tx, ref, lines) })
	return len(lines) >= egressLines, err
}

// recordEgress records the lines that nobody has recorded yet.
func (e *Engine) recordEgress(tx *ledger.Tx, ref sandbox.EnvironmentRef, lines []sandbox.EgressRecord) error {
	cursor, err := tx.EgressCursor(ref.Instance, ref.EnvironmentID)
	if err != nil {
		return err
	}
	for len(lines) > 0 && !lines[0].After(cursor.Position()) {
		lines = lines[1:]
	}
	if len(lines) == 0 {
		return nil
	}
	if n := missing(cursor.Position(), lines); n > 0 {
		if err := tx.AppendEnvironmentEvent(ref.EnvironmentID, sandbox.EventEgressLost, sandbox.EgressLost{Lines: n}); err != nil {
			return err
		}
	}
	for _, id := range sandboxesOf(lines) {
		if err := e.recordEgressOf(tx, id, ref, lines); err != nil {
			return err
		}
	}
	last := lines[len(lines)-1]
	cursor.Run, cursor.Line = last.Run, last.Line
	return tx.SaveEgressCursor(cursor)
}

// missing counts the lines that were removed before they were read. Of runs of which nothing is left it
// knows nothing.
func missing(at sandbox.EgressPosition, lines []sandbox.EgressRecord) (n int64) {
	for _, l := range lines {
		if l.Run != at.Run {
			at.Line = 0
		}
		n += l.Line - at.Line - 1
		at = l.EgressPosition
	}
	return n
}

// sandboxesOf lists the sandboxes in the order in which they come first.
func sandboxesOf(lines []sandbox.EgressRecord) (ids []string) {
	seen := make(map[string]bool)
	for _, l := range lines {
		if !seen[l.SandboxID] {
			seen[l.SandboxID] = true
			ids = append(ids, l.SandboxID)
		}
	}
	return ids
}

// recordEgressOf records one sandbox's lines. Of a sandbox that the ledger does not know any more there
// is nobody to record them for.
func (e *Engine) recordEgressOf(tx *ledger.Tx, id string, ref sandbox.EnvironmentRef, lines []sandbox.EgressRecord) error {
	s, err := tx.Sandbox(id)
	if err != nil || s == nil || s.Retired != nil || s.EnvironmentID != ref.EnvironmentID {
		return err
	}
	single, rest := e.rationEgress(id, tx.Now.Time(), attempts(id, lines))
	if s.Phase == sandbox.PhaseGone {
		return recordLateEgress(tx, s, single, rest)
	}
	for _, a := range single {
		if err := tx.AppendSandboxEvent(s, a.event, a.EgressAttempt); err != nil {
			return err
		}
	}
	if rest != (sandbox.EgressSummary{}) {
		if err := tx.AppendSandboxEvent(s, sandbox.EventEgressSummary, rest); err != nil {
			return err
		}
	}
	return tx.SaveSandbox(s)
}

// recordLateEgress has the environment tell what a sandbox did that is gone by now: nothing follows on a
// sandbox's last event.
func recordLateEgress(tx *ledger.Tx, s *ledger.Sandbox, single []attempt, rest sandbox.EgressSummary) error {
	of := &sandbox.EgressSource{SandboxID: s.ID, LeaseID: s.Lease(), Generation: s.Generation}
	for _, a := range single {
		a.Of = of
		if err := tx.AppendEnvironmentEvent(s.EnvironmentID, a.event, a.EgressAttempt); err != nil {
			return err
		}
	}
	if rest == (sandbox.EgressSummary{}) {
		return nil
	}
	rest.Of = of
	return tx.AppendEnvironmentEvent(s.EnvironmentID, sandbox.EventEgressSummary, rest)
}

// attempt is what one or two lines tell of an attempt, or a line of how many were dropped.
type attempt struct {
	sandbox.EgressRecord
	event sandbox.EventType
}

// attempts puts a sandbox's lines together: one that was opened and closed within them is one.
func attempts(id string, lines []sandbox.EgressRecord) []attempt {
	var all []attempt
	opened := make(map[string]int)
	for _, l := range lines {
		switch {
		case l.SandboxID != id:
		case l.Kind == sandbox.EgressOpened:
			opened[l.Attempt] = len(all)
			all = append(all, attempt{l, sandbox.EventEgressAllowed})
		case l.Kind == sandbox.EgressDropped:
			all = append(all, attempt{l, sandbox.EventEgressSummary})
		case l.Verdict == sandbox.EgressRefused:
			all = append(all, attempt{l, sandbox.EventEgressDenied})
		case l.Verdict == sandbox.EgressFailed:
			all = append(all, attempt{l, sandbox.EventEgressFailed})
		default:
			if i, ok := opened[l.Attempt]; ok {
				all[i].EgressAttempt = l.EgressAttempt
			} else {
				all = append(all, attempt{l, sandbox.EventEgressClosed})
			}
		}
	}
	return all
}

// rationEgress divides attempts into those that are recorded one by one and the sum of the others.
func (e *Engine) rationEgress(id string, now time.Time, all []attempt) (single []attempt, rest sandbox.EgressSummary) {
	limiter := e.egressLimiter(id, now)
	for _, a := range all {
		if a.Kind != sandbox.EgressDropped && limiter.AllowN(now, 1) {
			single = append(single, a)
			continue
		}
		if rest.From.IsZero() {
			rest.From = a.At
		}
		rest.To = a.At
		rest.Unlogged += a.Count
		rest.SentBytes += a.SentBytes
		rest.ReceivedBytes += a.ReceivedBytes
		switch a.event {
		case sandbox.EventEgressAllowed:
			rest.Allowed++
		case sandbox.EventEgressDenied:
			rest.Denied++
		case sandbox.EventEgressFailed:
			rest.Failed++
		}
		if a.Ended && a.Verdict == sandbox.EgressAllowed {
			rest.Closed++
		}
	}
	return single, rest
}

// egressLimiter returns the rate of one sandbox.
func (e *Engine) egressLimiter(id string, now time.Time) *rate.Limiter {
	e.mu.Lock()
	defer e.mu.Unlock()
	l, ok := e.egress[id]
	if ok {
		return l
	}
	if len(e.egress) >= egressLimiters {
		for id, l := range e.egress {
			if l.TokensAt(now) >= egressBurst {
				delete(e.egress, id)
			}
		}
	}
	l = rate.NewLimiter(rate.Every(egressEvery), egressBurst)
	e.egress[id] = l
	return l
}
