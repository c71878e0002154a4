package llm

import (
	"context"
	"maps"
	"slices"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/driver"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/ledger"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/ledger/modelcalls"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

func (s *Service) cursor(ctx context.Context, instance, environmentID string) (at sandbox.GatewayPosition, err error) {
	err = s.c.Store.Read(ctx, func(tx *ledger.Tx) error {
		c, err := modelcalls.In(tx).Cursor(instance, environmentID)
		at = c.Position()
		return err
	})
	return at, err
}

// record records the rest of a gateway's journal.
func (s *Service) record(ctx context.Context, from driver.LLMBroker, environmentID, instance string) error {
	abandoned, err := s.abandoned(ctx, environmentID) // before the end of the journal is read
	if err != nil {
		return err
	}
	for {
		at, err := s.cursor(ctx, instance, environmentID)
		if err != nil {
			return err
		}
		lines, err := from.LLMCalls(ctx, s.ref(environmentID, instance), at)
		if err != nil {
			return err
		}
		if len(lines) == 0 {
			return s.settleAbandoned(ctx, environmentID, abandoned)
		}
		var ended []sandbox.LLMCall
		err = s.c.Store.Write(ctx, func(tx *ledger.Tx) (err error) {
			ended, err = recordLines(tx, environmentID, instance, lines)
			return err
		})
		if err != nil {
			return err
		}
		s.tell(ended)
	}
}

// tell passes the calls whose end was recorded to the observer.
func (s *Service) tell(ended []sandbox.LLMCall) {
	if s.c.Observer == nil {
		return
	}
	for _, c := range ended {
		s.c.Observer.LLMCallEnded(c)
	}
}

// recordLines records the new lines, and returns the calls that they end.
func recordLines(tx *ledger.Tx, environmentID, instance string, lines []driver.LLMLine) ([]sandbox.LLMCall, error) {
	cursor, err := modelcalls.In(tx).Cursor(instance, environmentID)
	if err != nil {
		return nil, err
	}
	// A retried transaction gets the same lines.
	first := slices.IndexFunc(lines, func(l driver.LLMLine) bool { return l.After(cursor.Position()) })
	if first < 0 {
		return nil, nil
	}
	calls := make([]sandbox.LLMCall, 0, len(lines)-first)
	for _, l := range lines[first:] {
		l.EnvironmentID = environmentID // regardless of the gateway's value
		calls = append(calls, l.LLMCall)
	}
	ended, err := recordCalls(tx, environmentID, calls)
	if err != nil {
		return nil, err
	}
	last := lines[len(lines)-1]
	cursor.Run, cursor.Line = last.Run, last.Line
	return ended, modelcalls.In(tx).SaveCursor(cursor)
}

// recordCalls records calls, with an event for each ended call. It returns the ended calls.
func recordCalls(tx *ledger.Tx, environmentID string, calls []sandbox.LLMCall) ([]sandbox.LLMCall, error) {
	rows, err := modelcalls.In(tx).Record(calls)
	if err != nil {
		return nil, err
	}
	var ended []sandbox.LLMCall
	of := make(map[string][]sandbox.LLMCall) // by sandbox
	for i := range rows {
		c := rows[i].Domain()
		ended = append(ended, c)
		of[c.SandboxID] = append(of[c.SandboxID], c)
	}
	for _, id := range slices.Sorted(maps.Keys(of)) {
		if err := appendEvents(tx, environmentID, id, of[id]); err != nil {
			return nil, err
		}
	}
	return ended, nil
}

// appendEvents appends the events of a sandbox's calls. Nothing may follow the last event of a removed sandbox, so its
// environment gets them.
func appendEvents(tx *ledger.Tx, environmentID, sandboxID string, calls []sandbox.LLMCall) error {
	row, err := tx.Sandbox(sandboxID)
	if err != nil {
		return err
	}
	if row == nil || row.Tombstone != nil || row.EnvironmentID != environmentID || row.Phase == sandbox.PhaseGone {
		for _, c := range calls {
			if err := tx.AppendEnvironmentEvent(environmentID, c.Outcome.Event(), c); err != nil {
				return err
			}
		}
		return nil
	}
	return tx.UpdateRow(row, func(row *ledger.Sandbox) error {
		for _, c := range calls {
			if err := tx.AppendSandboxEvent(row, c.Outcome.Event(), c); err != nil {
				return err
			}
		}
		return nil
	})
}

// abandoned returns the ids of calls that the ledger has as running although their sandboxes are gone.
func (s *Service) abandoned(ctx context.Context, environmentID string) (ids map[string]bool, err error) {
	err = s.c.Store.Read(ctx, func(tx *ledger.Tx) error {
		rows, err := modelcalls.In(tx).Abandoned(environmentID)
		ids = make(map[string]bool, len(rows))
		for i := range rows {
			ids[rows[i].ID] = true
		}
		return err
	})
	return ids, err
}

// settleAbandoned settles abandoned calls that still run in the ledger although the journal was read to its end. The
// gateway has lost its journal, so they cost what was reserved for them.
func (s *Service) settleAbandoned(ctx context.Context, environmentID string, abandoned map[string]bool) error {
	if len(abandoned) == 0 {
		return nil
	}
	var lost []sandbox.LLMCall
	err := s.c.Store.Write(ctx, func(tx *ledger.Tx) error {
		lost = nil
		rows, err := modelcalls.In(tx).Abandoned(environmentID)
		if err != nil {
			return err
		}
		for i := range rows {
			if c := rows[i].Domain(); abandoned[c.ID] {
				c.EndedAt, c.Outcome, c.Unknown = tx.Now.Time(), sandbox.LLMInterrupted, true
				lost = append(lost, c)
			}
		}
		lost, err = recordCalls(tx, environmentID, lost)
		return err
	})
	if err == nil && len(lost) > 0 {
		s.tell(lost)
		s.c.Log.WarnContext(ctx, "llm: the gateway has lost the end of calls; they cost what was reserved for them",
			"environment", environmentID, "calls", len(lost))
	}
	return err
}
