package accounting

import (
	"strings"

	"gorm.io/gorm"
	"gorm.io/gorm/clause"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/ledger/micro"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/ledger/storage"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// UnrolledPeriods returns the usage periods that cost_days does not count yet: open ones, and those that
// ended since the last roll-up.
func (repo Rows) UnrolledPeriods() ([]UsagePeriod, error) {
	return storage.Find[UsagePeriod](repo.db.Where("rolled_at = 0")) // few, with a separate index
}

// UnrolledUse is UnrolledPeriods for one environment, with only the columns for costs: every acquire checks
// budgets.
func (repo Rows) UnrolledUse(environmentID string) ([]UsagePeriod, error) {
	return storage.Find[UsagePeriod](repo.db.Select("price_book_id", "memory_mb", "cpu_millis", "disk_mb", "state",
		"started_at", "ended_at", "cpu").
		Where("rolled_at = 0 AND environment_id = ?", environmentID))
}

// RolledPeriods returns the usage periods counted in cost_days that overlap [from, to).
func (repo Rows) RolledPeriods(from, to micro.Time) ([]UsagePeriod, error) {
	return storage.Find[UsagePeriod](repo.db.Where("rolled_at <> 0 AND ended_at >= ? AND started_at < ?", from, to))
}

// DetailSince returns the start of the retained usage periods; earlier usage is kept by day.
func (repo Rows) DetailSince() (micro.Time, error) {
	var since micro.Time
	err := repo.db.Table("ledgers").Select("detail_since").Scan(&since).Error
	return since, storage.Error("reading the ledger", err)
}

// TakeUnrolled marks up to limit ended usage periods as counted in cost_days, and returns them. The caller
// must count them in the same transaction. No period is returned twice.
func (repo Rows) TakeUnrolled(limit int) ([]UsagePeriod, error) {
	var rows []UsagePeriod
	err := repo.db.Raw(`UPDATE usage_periods SET rolled_at = ? WHERE rolled_at = 0 AND ended_at <> 0
		AND id IN (SELECT id FROM usage_periods WHERE rolled_at = 0 AND ended_at <> 0 LIMIT ?)
		RETURNING *`, repo.tx.Now, limit).Scan(&rows).Error
	return rows, storage.Error("counting usage", err)
}

// AddCostDays adds usage to its days and their months, and records the price books of the days.
func (repo Rows) AddCostDays(days []CostDay, books []AccountDay) error {
	if len(days) == 0 {
		return nil
	}
	key := []string{"month", "environment_id", "lease_id", "instance", "day"}
	err := repo.db.Clauses(storage.AddTo("cost_days", key, usageColumns...)).CreateInBatches(days, storage.InsertBatch).
		Error
	if err == nil {
		err = repo.addCostMonths(days)
	}
	if err == nil {
		err = repo.db.Clauses(clause.OnConflict{
			Columns: []clause.Column{{Name: "instance"}, {Name: "day"}},
			Where: clause.Where{Exprs: []clause.Expression{
				gorm.Expr("(excluded.begun_at, excluded.price_book_id) > (account_days.begun_at, account_days.price_book_id)"),
			}},
			DoUpdates: clause.AssignmentColumns([]string{"price_book_id", "begun_at"}),
		}).CreateInBatches(books, storage.InsertBatch).Error
	}
	return storage.Error("counting usage", err)
}

// usageColumns are the columns of Usage, in the order of usageFields.
var usageColumns = []string{"generations", "awake", "asleep", "cpu", "memory", "disk",
	"cost_memory", "cost_cpu", "cost_disk", "cost_asleep", "shadow_memory", "shadow_cpu", "shadow_disk", "shadow_asleep"}

// usageFields returns plain integer fields, which are read without reflection.
func usageFields(u *Usage) []any {
	return []any{&u.Generations, (*int64)(&u.Awake), (*int64)(&u.Asleep), (*int64)(&u.CPU), &u.Memory, &u.Disk,
		(*int64)(&u.Cost.Memory), (*int64)(&u.Cost.CPU), (*int64)(&u.Cost.Disk), (*int64)(&u.Cost.Asleep),
		(*int64)(&u.Shadow.Memory), (*int64)(&u.Shadow.CPU), (*int64)(&u.Shadow.Disk), (*int64)(&u.Shadow.Asleep)}
}

// LeaseUsage is the usage of one lease on one account in one month, or on one day. Usage in a pool has no
// lease and no agent.
type LeaseUsage struct {
	EnvironmentID, AgentDID, LeaseID string
	Backend                          sandbox.Backend
	Instance                         string
	Month                            string // 2006-01
	Day                              string // 2006-01-02; "" means the whole month
	Usage
}

// CostDays calls add for everything in cost_days from one day until before another ("2006-01-02", "" for no
// bound), by month or by day. It reads in key order, so it needs no sort.
func (repo Rows) CostDays(from, to string, byDay bool, add func(u LeaseUsage)) error {
	const lease = "month, environment_id, lease_id, instance"
	db := repo.db.Table("cost_days")
	if byDay {
		db = db.Select(lease + ", agent_did, backend, day, " + strings.Join(usageColumns, ", "))
	} else { // a lease has one agent, and an instance one backend
		db = db.Select(lease + ", MIN(agent_did), MIN(backend), '', CAST(SUM(" +
			strings.Join(usageColumns, ") AS BIGINT), CAST(SUM(") + ") AS BIGINT)").Group(lease)
	}
	if from != "" {
		db = db.Where("month >= ? AND day >= ?", monthOf(from), from)
	}
	if to != "" {
		db = db.Where("month <= ? AND day < ?", monthOf(to), to)
	}
	rows, err := db.Rows()
	if err != nil {
		return storage.Error("reading costs", err)
	}
	defer func() { _ = rows.Close() }() // Err reports all errors
	var u LeaseUsage
	fields := append([]any{
		&u.Month, &u.EnvironmentID, &u.LeaseID, &u.Instance, &u.AgentDID, (*string)(&u.Backend), &u.Day,
	}, usageFields(&u.Usage)...)
	for rows.Next() {
		if err := rows.Scan(fields...); err != nil {
			return storage.Error("reading costs", err)
		}
		add(u)
	}
	return storage.Error("reading costs", rows.Err())
}

// monthOf returns the name of a day's month.
func monthOf(day string) string { return day[:len("2006-01")] }

// AccountDays returns the price books of accounts from one day until before another; "" for no bound.
func (repo Rows) AccountDays(from, to string) ([]AccountDay, error) {
	db := repo.db
	if from != "" {
		db = db.Where("day >= ?", from)
	}
	if to != "" {
		db = db.Where("day < ?", to)
	}
	return storage.Find[AccountDay](db)
}
