// Package purge removes old rows of all subjects. Costs stay (cost_days). So does a tombstone of each sandbox: no id is
// reused, and a caller that asks for an old id learns its fate.
package purge

import (
	"database/sql"
	"encoding/json"
	"time"

	"gorm.io/gorm"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/ledger"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/ledger/accounting"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/ledger/deliveries"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/ledger/drift"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/ledger/execs"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/ledger/micro"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/ledger/modelcalls"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/ledger/storage"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// Purger removes rows in a transaction.
type Purger struct {
	tx *ledger.Tx
	db *gorm.DB
}

// In returns the purger of a transaction.
func In(tx *ledger.Tx) Purger { return Purger{tx, storage.DB(tx)} }

// RetainedSince returns the time before which ended objects are no longer retained. If the clock was set
// forward since, objects from before are retained for as much longer, so that a wrong clock removes nothing
// early.
func (repo Purger) RetainedSince(ttl micro.Span) (micro.Time, error) {
	since := repo.tx.Now.Add(-ttl)
	rows, err := storage.Find[ledger.Event](repo.db.Where("environment_id = '' AND type = ?", sandbox.EventClockStepped).
		Order("id DESC"))
	if err != nil {
		return 0, err
	}
	var sum, longer micro.Span // sum of the steps after the current one, and the largest such sum
	for _, e := range rows {
		if e.At.Add(sum) < since {
			break
		}
		var data ledger.ClockStep
		if err := json.Unmarshal([]byte(e.Data), &data); err != nil {
			return 0, sandbox.Errorf(sandbox.Internal, "reading event %d, a step of the clock: %w", e.ID, err)
		}
		sum += micro.Span(data.Seconds * float64(time.Second/time.Microsecond))
		longer = max(longer, sum)
	}
	return since.Add(-longer), nil
}

// Purgeable returns sandboxes that were destroyed before a time and whose usage is counted by day, oldest
// first. A model call that the ledger has as running is not counted yet; its row would stay when it is.
func (repo Purger) Purgeable(before micro.Time, limit int) ([]ledger.Sandbox, error) {
	return storage.Find[ledger.Sandbox](repo.db.Omit("env", "settings", "expiry_conditions").
		Where("phase = 'gone' AND destroyed_at < ?", before).
		Where("NOT EXISTS (SELECT 1 FROM usage_periods WHERE sandbox_id = sandboxes.id AND rolled_at <= 0)").
		Where("NOT EXISTS (SELECT 1 FROM llm_calls WHERE environment_id = sandboxes.environment_id AND " +
			"sandbox_id = sandboxes.id AND outcome = 'running')").
		Order("destroyed_at").Limit(limit))
}

// Events removes up to limit of a sandbox's events, oldest first and never the last one, and returns the
// number.
func (repo Purger) Events(s *ledger.Sandbox, limit int) (int64, error) {
	return repo.purge("id IN (SELECT id FROM events WHERE sandbox_id = ? AND sandbox_id <> '' AND "+
		"sequence < ? ORDER BY sequence LIMIT ?)", s.ID, s.LastSequence, limit)
}

// Sandboxes removes destroyed sandboxes with their usage periods, events, commands, processes and
// sessions, and keeps a tombstone of each. Their recordings and usage samples must already be purged. objects
// returns the objects that a command may have left in the bucket. It returns the number of removed events.
func (repo Purger) Sandboxes(rows []ledger.Sandbox, objects func(*execs.Exec) []string) (int64, error) {
	ids := make([]string, len(rows))
	for i := range rows {
		ids[i] = rows[i].ID
	}
	if err := execs.In(repo.tx).Purge(ids, objects); err != nil {
		return 0, err
	}
	events, err := repo.removeEvents("sandbox_id IN ? AND sandbox_id <> ''", ids)
	if err != nil {
		return 0, err
	}
	calls, err := modelcalls.In(repo.tx).OfSandboxes(ids)
	if err != nil {
		return 0, err
	}
	usage, err := repo.removeUsage(ids)
	if err != nil {
		return 0, err
	}
	if err := storage.Create(repo.tx, repo.tombstones(rows, events, usage.costs, calls)); err != nil {
		return 0, err
	}
	if _, err := storage.RowCount("purging sandboxes", repo.db.Where("id IN ?", ids).
		Delete(&ledger.Sandbox{})); err != nil {
		return 0, err
	}
	return int64(len(events)), repo.noteRemoved(events, usage.until)
}

// removedUsage describes removed usage.
type removedUsage struct {
	until micro.Time // when the last of it ended
	costs map[string]sandbox.NanoUSD
}

// removeUsage removes the usage periods of sandboxes, which must be in the sums, and then the sums.
func (repo Purger) removeUsage(sandboxIDs []string) (u removedUsage, err error) {
	if u.costs, err = accounting.In(repo.tx).SandboxCosts(sandboxIDs); err != nil {
		return u, err
	}
	var ends []micro.Time
	err = repo.db.Raw("DELETE FROM usage_periods WHERE sandbox_id IN ? RETURNING ended_at", sandboxIDs).
		Scan(&ends).Error
	if err == nil {
		err = repo.db.Where("sandbox_id IN ?", sandboxIDs).Delete(&accounting.SandboxCost{}).Error
	}
	if err == nil {
		var began []micro.Time
		err = repo.db.Raw("DELETE FROM llm_calls WHERE sandbox_id IN ? AND outcome <> ? RETURNING started_at", sandboxIDs,
			sandbox.LLMRunning).Scan(&began).Error
		ends = append(ends, began...)
	}
	for _, at := range ends {
		u.until = max(u.until, at)
	}
	return u, storage.Error("removing usage", err)
}

// tombstones returns what stays of sandboxes.
func (repo Purger) tombstones(rows []ledger.Sandbox, events []removedEvent, costs map[string]sandbox.NanoUSD,
	calls map[string]sandbox.LLMUse) *[]ledger.Tombstone {
	last := make(map[string]int64)
	for _, e := range events {
		last[e.SandboxID] = max(last[e.SandboxID], e.ID)
	}
	kept := make([]ledger.Tombstone, len(rows))
	for i := range rows {
		s := &rows[i]
		kept[i] = ledger.Tombstone{
			ID:            s.ID,
			LeaseID:       s.Lease(),
			Generation:    s.Generation,
			EnvironmentID: s.EnvironmentID,
			Owner:         s.Owner,
			LedgerID:      s.Origin.LedgerID,
			LastSequence:  s.LastSequence,
			LastEventID:   last[s.ID],
			LeasedAt:      s.LeasedAt,
			EndedAt:       s.Ending.At,
			EndedBy:       s.Ending.By,
			EndReason:     s.Ending.Reason,
			DestroyedAt:   s.Ending.DestroyedAt,
			PurgedAt:      repo.tx.Now,
			Labels:        sandbox.EffectiveLabels(s.Labels, nil),
			Cost:          costs[s.ID],
			LLM:           calls[s.ID],
		}
	}
	return &kept
}

// removedEvent describes a removed event.
type removedEvent struct {
	ID        int64
	SandboxID string
}

func (repo Purger) removeEvents(where string, args ...any) (events []removedEvent, err error) {
	err = repo.db.Raw("DELETE FROM events WHERE "+where+" RETURNING id, sandbox_id", args...).Scan(&events).Error
	return events, storage.Error("removing events", err)
}

// purge removes events, and returns their number.
func (repo Purger) purge(where string, args ...any) (int64, error) {
	events, err := repo.removeEvents(where, args...)
	if err != nil {
		return 0, err
	}
	return int64(len(events)), repo.noteRemoved(events, 0)
}

// noteRemoved records that not all events up to the last of these can be replayed, and that usage is kept
// only by day up to a time, 0 for none. Neither ever moves back.
func (repo Purger) noteRemoved(events []removedEvent, usage micro.Time) error {
	var purged int64
	for _, e := range events {
		purged = max(purged, e.ID)
	}
	var detail micro.Time
	if usage != 0 {
		detail = usage + 1
	}
	if purged == 0 && detail == 0 {
		return nil
	}
	_, err := storage.RowCount("noting what is retained", repo.db.Exec(`UPDATE ledgers SET
		purged_event_id = CASE WHEN purged_event_id < @purged THEN @purged ELSE purged_event_id END,
		detail_since = CASE WHEN detail_since < @detail THEN @detail ELSE detail_since END`,
		sql.Named("purged", purged), sql.Named("detail", detail)))
	return err
}

// Environments reduces up to limit environments that were destroyed before a time to their names; their
// leases continue to count generations from there. It returns the number.
func (repo Purger) Environments(before micro.Time, limit int) (int64, error) {
	rows, err := storage.Find[ledger.Environment](repo.db.
		Where("status = 'destroyed' AND retired_at = 0 AND updated_at < ?", before).
		Order("updated_at").Limit(limit))
	for i := range rows {
		row := &rows[i]
		row.Spec = sandbox.EnvironmentSpec{Type: row.Spec.Type, Backend: row.Spec.Backend, Labels: row.Spec.Labels}
		row.Ended.Conditions, row.Pool.Error, row.PurgedAt = []string{}, "", repo.tx.Now
		if err := storage.Save(repo.tx, row); err != nil {
			return 0, err
		}
	}
	return int64(len(rows)), err
}

// EnvironmentEvents removes up to limit events of environments from before a time, and returns the
// number. Steps of the clock stay, because RetainedSince needs them.
func (repo Purger) EnvironmentEvents(before micro.Time, limit int) (int64, error) {
	return repo.purge("id IN (SELECT id FROM events WHERE sandbox_id = '' AND environment_id <> '' AND "+
		"at < ? ORDER BY at LIMIT ?)", before, limit)
}

// Deliveries removes up to limit deliveries received before a time, and returns the number. Their ids
// then count as new.
func (repo Purger) Deliveries(before micro.Time, limit int) (int64, error) {
	old := repo.db.Model(&deliveries.Delivery{}).Select("id, environment_id").Where("received_at < ?", before).
		Order("received_at").Limit(limit)
	return storage.RowCount("removing deliveries",
		repo.db.Where("(id, environment_id) IN (?)", old).Delete(&deliveries.Delivery{}))
}

// Findings removes up to limit drift findings resolved before a time, and returns the number.
func (repo Purger) Findings(before micro.Time, limit int) (int64, error) {
	old := repo.db.Model(&drift.Finding{}).Select("id").Where("resolved_at <> 0 AND resolved_at < ?", before).
		Order("resolved_at").Limit(limit)
	return storage.RowCount("removing drift findings", repo.db.Where("id IN (?)", old).Delete(&drift.Finding{}))
}

// UsageSamples removes up to limit samples from before a time, and returns the number.
func (repo Purger) UsageSamples(before micro.Time, limit int) (int64, error) {
	return accounting.In(repo.tx).RemoveSamples(repo.db.Where("at < ?", before).Order("at").Limit(limit))
}
