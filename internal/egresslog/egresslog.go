// Package egresslog turns the logs of gateways into events: what restricted sandboxes try to reach. A gateway keeps its
// log for some time. The transaction that records events also stores the position in the log. So each line counts once,
// even if several processes read it or one dies.
package egresslog

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"golang.org/x/time/rate"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/driver"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/ledger"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/parallel"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// The first burst attempts of a sandbox are recorded one by one, then one per interval. Each read sums up the others in
// one event. So a sandbox with thousands of attempts a second costs the ledger only a few rows.
const (
	burst    = 300
	interval = 2 * time.Second
	// readTimeout limits the read of one gateway's log. maxLines limits the lines in one transaction.
	readTimeout = 20 * time.Second
	maxLines    = 10_000
	// readers limits the logs that are read concurrently.
	readers = 8
	// maxLimiters is the number of limiters above which those of idle sandboxes are dropped.
	maxLimiters = 1000
)

// Source provides the logs of gateways.
type Source interface {
	// EgressLogs returns the environments of a ledger that have a log. With an error, some may be missing.
	EgressLogs(ctx context.Context, ledgerID string) ([]driver.EnvironmentRef, error)
	// EgressLog returns lines after a position. It returns none at the end of the log.
	EgressLog(ctx context.Context, ref driver.EnvironmentRef,
		after sandbox.GatewayPosition) ([]sandbox.EgressRecord, error)
}

// Collector records the logs of gateways. It is safe for concurrent use by any number of processes on one ledger.
type Collector struct {
	store *ledger.Store

	mu       sync.Mutex               // guards limiters
	limiters map[string]*rate.Limiter // by sandbox
}

// New returns a Collector.
func New(store *ledger.Store) *Collector {
	return &Collector{store: store, limiters: make(map[string]*rate.Limiter)}
}

// Collect records what the gateways of an instance have logged since the last call. A gateway that does not answer does
// not delay the others. It returns the errors of all gateways.
func (c *Collector) Collect(ctx context.Context, from Source, instance string) error {
	refs, unlisted := from.EgressLogs(ctx, c.store.ID())
	unread := parallel.Each(readers, refs, func(ref *driver.EnvironmentRef) error {
		for more := ref.Instance == instance; more && ctx.Err() == nil; {
			var err error
			if more, err = c.collect(ctx, from, *ref); err != nil {
				return fmt.Errorf("reading the egress log of environment %s: %w", ref.EnvironmentID, err)
			}
		}
		return nil
	})
	return errors.Join(unlisted, unread)
}

// collect records part of a gateway's log, and reports whether there may be more.
func (c *Collector) collect(ctx context.Context, from Source, ref driver.EnvironmentRef) (more bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, readTimeout)
	defer cancel()
	var cursor ledger.EgressCursor
	err = c.store.Read(ctx, func(tx *ledger.Tx) (err error) {
		cursor, err = tx.EgressCursor(ref.Instance, ref.EnvironmentID)
		return err
	})
	if err != nil {
		return false, err
	}
	var lines []sandbox.EgressRecord
	for at := cursor.Position(); len(lines) < maxLines; {
		page, err := from.EgressLog(ctx, ref, at)
		if err != nil {
			return false, err
		}
		if len(page) == 0 {
			break
		}
		lines = append(lines, page...)
		at = page[len(page)-1].GatewayPosition
	}
	if len(lines) == 0 {
		return false, nil
	}
	err = c.store.Write(ctx, func(tx *ledger.Tx) error { return c.record(tx, ref, lines) })
	return len(lines) >= maxLines, err
}

// record records the new lines.
func (c *Collector) record(tx *ledger.Tx, ref driver.EnvironmentRef, lines []sandbox.EgressRecord) error {
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
		if err := tx.AppendEnvironmentEvent(ref.EnvironmentID, sandbox.EventEgressLost,
			sandbox.EgressLost{Lines: n}); err != nil {
			return err
		}
	}
	for _, id := range sandboxesOf(lines) {
		if err := c.recordSandbox(tx, id, ref, lines); err != nil {
			return err
		}
	}
	last := lines[len(lines)-1]
	cursor.Run, cursor.Line = last.Run, last.Line
	return tx.SaveEgressCursor(cursor)
}

// missing counts the lines that the gateway removed before they were read. It cannot count the lines of a run that left
// none.
func missing(at sandbox.GatewayPosition, lines []sandbox.EgressRecord) (n int64) {
	for _, l := range lines {
		if l.Run != at.Run {
			at.Line = 0
		}
		n += l.Line - at.Line - 1
		at = l.GatewayPosition
	}
	return n
}

// sandboxesOf returns the sandboxes in the order of their first line.
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

// recordSandbox records one sandbox's lines. Lines of a purged sandbox are dropped.
func (c *Collector) recordSandbox(tx *ledger.Tx, id string, ref driver.EnvironmentRef,
	lines []sandbox.EgressRecord) error {
	s, err := tx.Sandbox(id)
	if err != nil || s == nil || s.Tombstone != nil || s.EnvironmentID != ref.EnvironmentID {
		return err
	}
	single, rest := c.ration(id, tx.Now.Time(), attempts(id, lines))
	if s.Phase == sandbox.PhaseGone {
		return recordLate(tx, s, single, rest)
	}
	return tx.UpdateRow(s, func(s *ledger.Sandbox) error {
		for _, a := range single {
			if err := tx.AppendSandboxEvent(s, a.event, a.EgressAttempt); err != nil {
				return err
			}
		}
		if rest == (sandbox.EgressSummary{}) {
			return nil
		}
		return tx.AppendSandboxEvent(s, sandbox.EventEgressSummary, rest)
	})
}

// recordLate records the attempts of a destroyed sandbox as events of its environment, because nothing may follow the
// sandbox's last event.
func recordLate(tx *ledger.Tx, s *ledger.Sandbox, single []attempt, rest sandbox.EgressSummary) error {
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

// attempt is one attempt from one or two lines, or a line with a count of dropped lines.
type attempt struct {
	sandbox.EgressRecord
	event sandbox.EventType
}

// attempts pairs a sandbox's lines: an opened line and its closed line become one attempt.
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

// ration splits attempts into those to record one by one and the sum of the others.
func (c *Collector) ration(id string, now time.Time, all []attempt) (single []attempt, rest sandbox.EgressSummary) {
	limiter := c.limiter(id, now)
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

// limiter returns the rate limiter of a sandbox.
func (c *Collector) limiter(id string, now time.Time) *rate.Limiter {
	c.mu.Lock()
	defer c.mu.Unlock()
	l, ok := c.limiters[id]
	if ok {
		return l
	}
	if len(c.limiters) >= maxLimiters {
		for id, l := range c.limiters {
			if l.TokensAt(now) >= burst {
				delete(c.limiters, id)
			}
		}
	}
	l = rate.NewLimiter(rate.Every(interval), burst)
	c.limiters[id] = l
	return l
}
