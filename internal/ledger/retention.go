package ledger

import (
	"database/sql"
	"encoding/json"
	"time"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/ledger/micro"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/ledger/storage"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// Retention removes objects that were destroyed long ago. Costs stay (cost_days), and a short record of each
// sandbox, so that no id is reused and a caller that asks for an old one gets its fate.

// Tombstone is a row of retired_sandboxes: what is left of a purged sandbox, for ever.
type Tombstone struct {
	ID            string `gorm:"primaryKey"`
	LeaseID       string // "" if it was never leased
	Generation    int64
	EnvironmentID string
	Owner         string
	LedgerID      string
	LastSequence  int64
	LastEventID   int64
	LeasedAt      micro.Time
	EndedAt       micro.Time
	EndedBy       sandbox.EndedBy
	DestroyedAt   micro.Time
	PurgedAt      micro.Time        `gorm:"column:retired_at"`
	Labels        map[string]string `gorm:"serializer:json"`
	// Cost is the gross cost of the generation.
	Cost sandbox.NanoUSD
}

// TableName implements gorm's Tabler.
func (Tombstone) TableName() string { return "retired_sandboxes" }

// sandbox returns the known columns of the row.
func (r *Tombstone) sandbox() *Sandbox {
	s := &Sandbox{
		ID: r.ID, EnvironmentID: r.EnvironmentID,
		Tenure:  Tenure{Generation: r.Generation, Owner: r.Owner, LeasedAt: r.LeasedAt},
		Terms:   Terms{ExpiryConditions: []string{}, Labels: r.Labels},
		Origin:  Origin{LedgerID: r.LedgerID},
		Desired: Gone, Phase: sandbox.PhaseGone,
		Status:   Status{State: sandbox.SandboxDeleted, Since: r.DestroyedAt},
		Ending:   Ending{At: r.EndedAt, By: r.EndedBy, DestroyedAt: r.DestroyedAt},
		Schedule: Schedule{DueAt: micro.Never}, LastSequence: r.LastSequence, Tombstone: r,
	}
	if r.LeaseID != "" {
		s.LeaseID = &r.LeaseID
		s.AgentDID, _, _ = sandbox.ParseLeaseID(r.LeaseID)
	}
	return s
}

// tombstone returns what is left of a sandbox, nil if it never existed.
func (repo Retention) tombstone(id string) (*Sandbox, error) {
	r, err := storage.First[Tombstone](repo.tx, "id = ?", id)
	if err != nil || r == nil {
		return nil, err
	}
	return r.sandbox(), nil
}

// RetainedSince returns the time before which ended objects are no longer retained. If the clock was set
// forward since, objects from before are retained for as much longer, so that a wrong clock removes nothing
// early.
func (repo Retention) RetainedSince(ttl micro.Span) (micro.Time, error) {
	since := repo.tx.Now.Add(-ttl)
	rows, err := storage.Find[Event](repo.tx.db.Where("environment_id = '' AND type = ?", sandbox.EventClockStepped).
		Order("id DESC"))
	if err != nil {
		return 0, err
	}
	var sum, longer micro.Span // sum of the steps after the current one, and the largest such sum
	for _, e := range rows {
		if e.At.Add(sum) < since {
			break
		}
		var data clockStep
		if err := json.Unmarshal([]byte(e.Data), &data); err != nil {
			return 0, sandbox.Errorf(sandbox.Internal, "reading event %d, a step of the clock: %w", e.ID, err)
		}
		sum += micro.Span(data.Seconds * float64(time.Second/time.Microsecond))
		longer = max(longer, sum)
	}
	return since.Add(-longer), nil
}

// Purgeable returns sandboxes that were destroyed before a time and whose usage is counted by day, oldest
// first.
func (repo Retention) Purgeable(before micro.Time, limit int) ([]Sandbox, error) {
	return storage.Find[Sandbox](repo.tx.db.Omit("env", "settings", "expiry_conditions").
		Where("phase = 'gone' AND destroyed_at < ?", before).
		Where("NOT EXISTS (SELECT 1 FROM usage_periods WHERE sandbox_id = sandboxes.id AND rolled_at <= 0)").
		Order("destroyed_at").Limit(limit))
}

// PurgeEvents removes up to limit of a sandbox's events, oldest first and never the last one, and returns the
// number.
func (repo Retention) PurgeEvents(s *Sandbox, limit int) (int64, error) {
	return repo.tx.Retention().purge("id IN (SELECT id FROM events WHERE sandbox_id = ? AND sandbox_id <> '' AND "+
		"sequence < ? ORDER BY sequence LIMIT ?)", s.ID, s.LastSequence, limit)
}

// PurgeSandboxes removes destroyed sandboxes with their usage periods, events, commands, processes and
// sessions, and keeps a tombstone of each. Their recordings and usage samples must already be purged. objects
// returns the objects that a command may have left in the bucket. It returns the number of removed events.
func (repo Retention) PurgeSandboxes(rows []Sandbox, objects func(*Exec) []string) (int64, error) {
	ids := make([]string, len(rows))
	for i := range rows {
		ids[i] = rows[i].ID
	}
	if err := repo.tx.Commands().forgetKept(ids); err != nil {
		return 0, err
	}
	if err := repo.tx.Commands().purgeExecs(ids, objects); err != nil {
		return 0, err
	}
	if err := repo.tx.Commands().purgeSessions(ids); err != nil {
		return 0, err
	}
	if err := repo.tx.Commands().purgeProcesses(ids); err != nil {
		return 0, err
	}
	events, err := repo.tx.Retention().removeEvents("sandbox_id IN ? AND sandbox_id <> ''", ids)
	if err != nil {
		return 0, err
	}
	usage, err := repo.tx.Retention().removeUsage(ids)
	if err != nil {
		return 0, err
	}
	if err := storage.Create(repo.tx, repo.tx.Retention().tombstones(rows, events, usage.costs)); err != nil {
		return 0, err
	}
	if _, err := storage.RowCount("purging sandboxes", repo.tx.db.Where("id IN ?", ids).Delete(&Sandbox{})); err != nil {
		return 0, err
	}
	return int64(len(events)), repo.tx.Retention().noteRemoved(events, usage.until)
}

// removedUsage describes removed usage.
type removedUsage struct {
	until micro.Time // when the last of it ended
	costs map[string]sandbox.NanoUSD
}

// removeUsage removes the usage periods of sandboxes, which must be in the sums, and then the sums.
func (repo Retention) removeUsage(sandboxIDs []string) (u removedUsage, err error) {
	if u.costs, err = repo.tx.Accounting().SandboxCosts(sandboxIDs); err != nil {
		return u, err
	}
	var ends []micro.Time
	err = repo.tx.db.Raw("DELETE FROM usage_periods WHERE sandbox_id IN ? RETURNING ended_at", sandboxIDs).
		Scan(&ends).Error
	if err == nil {
		err = repo.tx.db.Where("sandbox_id IN ?", sandboxIDs).Delete(&SandboxCost{}).Error
	}
	if err == nil {
		var began []micro.Time
		err = repo.tx.db.Raw("DELETE FROM llm_calls WHERE sandbox_id IN ? AND outcome <> ? RETURNING started_at", sandboxIDs,
			sandbox.LLMRunning).Scan(&began).Error
		ends = append(ends, began...)
	}
	for _, at := range ends {
		u.until = max(u.until, at)
	}
	return u, storage.Error("removing usage", err)
}

// tombstones returns what stays of sandboxes.
func (repo Retention) tombstones(rows []Sandbox, events []removedEvent, costs map[string]sandbox.NanoUSD) *[]Tombstone {
	last := make(map[string]int64)
	for _, e := range events {
		last[e.SandboxID] = max(last[e.SandboxID], e.ID)
	}
	kept := make([]Tombstone, len(rows))
	for i := range rows {
		s := &rows[i]
		kept[i] = Tombstone{
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
			DestroyedAt:   s.Ending.DestroyedAt,
			PurgedAt:      repo.tx.Now,
			Labels:        sandbox.EffectiveLabels(s.Labels, nil),
			Cost:          costs[s.ID],
		}
	}
	return &kept
}

// removedEvent describes a removed event.
type removedEvent struct {
	ID        int64
	SandboxID string
}

func (repo Retention) removeEvents(where string, args ...any) (events []removedEvent, err error) {
	err = repo.tx.db.Raw("DELETE FROM events WHERE "+where+" RETURNING id, sandbox_id", args...).Scan(&events).Error
	return events, storage.Error("removing events", err)
}

// purge removes events, and returns their number.
func (repo Retention) purge(where string, args ...any) (int64, error) {
	events, err := repo.tx.Retention().removeEvents(where, args...)
	if err != nil {
		return 0, err
	}
	return int64(len(events)), repo.tx.Retention().noteRemoved(events, 0)
}

// noteRemoved records that not all events up to the last of these can be replayed, and that usage is kept
// only by day up to a time, 0 for none. Neither ever moves back.
func (repo Retention) noteRemoved(events []removedEvent, usage micro.Time) error {
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
	_, err := storage.RowCount("noting what is retained", repo.tx.db.Exec(`UPDATE ledgers SET
		purged_event_id = CASE WHEN purged_event_id < @purged THEN @purged ELSE purged_event_id END,
		detail_since = CASE WHEN detail_since < @detail THEN @detail ELSE detail_since END`,
		sql.Named("purged", purged), sql.Named("detail", detail)))
	return err
}

// PurgeEnvironments reduces up to limit environments that were destroyed before a time to their names; their
// leases continue to count generations from there. It returns the number.
func (repo Retention) PurgeEnvironments(before micro.Time, limit int) (int64, error) {
	rows, err := storage.Find[Environment](repo.tx.db.Where("status = 'destroyed' AND retired_at = 0 AND updated_at < ?",
		before).
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

// RemoveEnvironmentEvents removes up to limit events of environments from before a time, and returns the
// number. Steps of the clock stay, because RetainedSince needs them.
func (repo Retention) RemoveEnvironmentEvents(before micro.Time, limit int) (int64, error) {
	return repo.tx.Retention().purge("id IN (SELECT id FROM events WHERE sandbox_id = '' AND environment_id <> '' AND "+
		"at < ? ORDER BY at LIMIT ?)", before, limit)
}

// RemoveDeliveries removes up to limit deliveries received before a time, and returns the number. Their ids
// then count as new.
func (repo Retention) RemoveDeliveries(before micro.Time, limit int) (int64, error) {
	old := repo.tx.db.Model(&Delivery{}).Select("id").Where("received_at < ?", before).Order("received_at").Limit(limit)
	return storage.RowCount("removing deliveries", repo.tx.db.Where("id IN (?)", old).Delete(&Delivery{}))
}

// RemoveFindings removes up to limit drift findings resolved before a time, and returns the number.
func (repo Retention) RemoveFindings(before micro.Time, limit int) (int64, error) {
	old := repo.tx.db.Model(&DriftFinding{}).Select("id").Where("resolved_at <> 0 AND resolved_at < ?", before).
		Order("resolved_at").Limit(limit)
	return storage.RowCount("removing drift findings", repo.tx.db.Where("id IN (?)", old).Delete(&DriftFinding{}))
}
