package ledger

import (
	"fmt"
	"strings"

	"gorm.io/gorm"
	"gorm.io/gorm/clause"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/sandbox"
)

// RatedPeriod is a usage period and whether it is the first of its generation.
type RatedPeriod struct {
	UsagePeriod
	// IsFirst marks the period with which a generation's usage begins.
	IsFirst bool
}

// isFirst computes RatedPeriod.IsFirst. A pool's sandbox is of no generation yet.
const isFirst = `lease_id <> '' AND NOT EXISTS (SELECT 1 FROM usage_periods AS earlier
	WHERE earlier.sandbox_id = usage_periods.sandbox_id AND earlier.lease_id = usage_periods.lease_id AND earlier.id < usage_periods.id)`

// PeriodFilter selects usage periods. Empty fields select all.
type PeriodFilter struct {
	EnvironmentID string
	AgentDID      string
	// Rolled selects what cost_days counts and overlaps [From, To); or else all that it does not
	// count yet.
	Rolled   bool
	From, To Time
}

// Periods returns the usage periods that a filter selects.
func (tx *Tx) Periods(f PeriodFilter) ([]RatedPeriod, error) {
	db := tx.db.Table("usage_periods").Select("*, " + isFirst + " AS is_first")
	if f.Rolled {
		db = db.Where("rolled_at <> 0 AND ended_at >= ? AND started_at < ?", f.From, f.To)
	} else {
		db = db.Where("rolled_at = 0") // few, and by an index of their own
	}
	if f.EnvironmentID != "" {
		db = db.Where("environment_id = ?", f.EnvironmentID)
	}
	if f.AgentDID != "" {
		db = db.Where("agent_did = ?", f.AgentDID)
	}
	return find[RatedPeriod](db)
}

// DetailSince returns since when usage periods are kept; of what was before there are days only.
func (tx *Tx) DetailSince() (Time, error) {
	var since Time
	err := tx.db.Table("ledgers").Select("detail_since").Scan(&since).Error
	return since, unavailable("reading the ledger", err)
}

// TakeUnrolled marks up to limit ended usage periods as counted in cost_days, and returns them for
// their caller to count there in the same transaction. No period is returned to two callers.
func (tx *Tx) TakeUnrolled(limit int) ([]RatedPeriod, error) {
	var rows []RatedPeriod
	err := tx.db.Raw(`UPDATE usage_periods SET rolled_at = ? WHERE rolled_at = 0 AND ended_at <> 0
		AND id IN (SELECT id FROM usage_periods WHERE rolled_at = 0 AND ended_at <> 0 LIMIT ?)
		RETURNING *, `+isFirst+" AS is_first", tx.Now, limit).Scan(&rows).Error
	return rows, unavailable("counting usage", err)
}

// costDayBatch bounds the variables of one INSERT.
const costDayBatch = 200

// AddCostDays adds usage to the days that it belongs to.
func (tx *Tx) AddCostDays(days []CostDay) error {
	if len(days) == 0 {
		return nil
	}
	sums := make(map[string]any)
	for _, c := range usageColumns {
		sums[c] = gorm.Expr("cost_days." + c + " + excluded." + c)
	}
	return unavailable("counting usage", tx.db.Clauses(clause.OnConflict{
		Columns:   []clause.Column{{Name: "day"}, {Name: "environment_id"}, {Name: "lease_id"}, {Name: "instance"}},
		DoUpdates: clause.Assignments(sums),
	}).CreateInBatches(days, costDayBatch).Error)
}

var usageColumns = []string{"generations", "awake", "asleep", "cpu", "memory", "disk", "cost", "shadow_cost"}

// DayFilter selects days: From and To are days ("2006-01-02"), To exclusive; empty fields select all.
type DayFilter struct {
	EnvironmentID string
	AgentDID      string
	From, To      string
}

func (f DayFilter) where(db *gorm.DB) *gorm.DB {
	for _, c := range []struct{ condition, value string }{
		{"day >= ?", f.From}, {"day < ?", f.To}, {"environment_id = ?", f.EnvironmentID}, {"agent_did = ?", f.AgentDID},
	} {
		if c.value != "" {
			db = db.Where(c.condition, c.value)
		}
	}
	return db
}

// CostSum is usage of one group, on one account, in one month.
type CostSum struct {
	EnvironmentID string
	AgentDID      string `gorm:"column:agent_did"`
	LeaseID       string
	Day           string
	Month         string // 2006-01
	Backend       sandbox.Backend
	Instance      string
	Usage
}

// SumCostDays sums cost_days by account, month and the given columns of it; the others are left
// empty.
func (tx *Tx) SumCostDays(f DayFilter, by ...string) ([]CostSum, error) {
	group := append([]string{"backend", "instance", "substr(day, 1, 7)"}, by...)
	columns := append([]string{"substr(day, 1, 7) AS month", "backend", "instance"}, by...)
	for _, c := range usageColumns {
		columns = append(columns, fmt.Sprintf("CAST(SUM(%s) AS BIGINT) AS %s", c, c))
	}
	db := f.where(tx.db.Table("cost_days")).Select(strings.Join(columns, ", ")).Group(strings.Join(group, ", "))
	return find[CostSum](db)
}
