// Package modelcalls keeps the rows of model calls and their sums.
package modelcalls

import (
	"gorm.io/gorm"
	"gorm.io/gorm/clause"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/ledger"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/ledger/micro"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/ledger/storage"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// Rows are the package's rows in a transaction.
type Rows struct {
	tx *ledger.Tx
	db *gorm.DB
}

// In returns the rows in a transaction.
func In(tx *ledger.Tx) Rows { return Rows{tx, storage.DB(tx)} }

// Call is a row of llm_calls: one model call, as the gateway recorded it.
type Call struct {
	ID            string `gorm:"primaryKey"`
	EnvironmentID string
	LeaseID       string
	Generation    int64
	SandboxID     string
	AgentDID      string `gorm:"column:agent_did"`
	Route         string
	Model         string
	Session       string
	StartedAt     micro.Time
	EndedAt       micro.Time
	Outcome       sandbox.LLMOutcome
	Status        int
	sandbox.LLMTokens
	// Cost is the reserved amount while the call runs.
	Cost    sandbox.NanoUSD
	Unknown ledger.Flag
}

// TableName implements gorm's Tabler.
func (Call) TableName() string { return "llm_calls" }

// Domain converts the call to the domain type.
func (c *Call) Domain() sandbox.LLMCall {
	return sandbox.LLMCall{
		ID: c.ID, EnvironmentID: c.EnvironmentID, LeaseID: c.LeaseID, Generation: c.Generation, SandboxID: c.SandboxID,
		AgentDID: c.AgentDID, Route: c.Route, Model: c.Model, Session: c.Session, StartedAt: c.StartedAt.Time(),
		EndedAt: c.EndedAt.Time(), Outcome: c.Outcome, Status: c.Status, Tokens: c.LLMTokens, Cost: c.Cost,
		Unknown: bool(c.Unknown),
	}
}

func llmCall(c sandbox.LLMCall) Call {
	return Call{
		ID: c.ID, EnvironmentID: c.EnvironmentID, LeaseID: c.LeaseID, Generation: c.Generation, SandboxID: c.SandboxID,
		AgentDID: c.AgentDID, Route: c.Route, Model: c.Model, Session: c.Session, StartedAt: micro.At(c.StartedAt),
		EndedAt: micro.At(c.EndedAt), Outcome: c.Outcome, Status: c.Status, LLMTokens: c.Tokens, Cost: c.Cost,
		Unknown: ledger.Flag(c.Unknown),
	}
}

// Day is a row of llm_days: the sum of a lease's calls of one model that began on one UTC day.
type Day struct {
	Month         string `gorm:"primaryKey"` // 2006-01
	EnvironmentID string `gorm:"primaryKey"`
	LeaseID       string `gorm:"primaryKey"`
	Day           string `gorm:"primaryKey"` // 2006-01-02
	Route         string `gorm:"primaryKey"`
	Model         string `gorm:"primaryKey"`
	AgentDID      string `gorm:"column:agent_did"`
	Calls         int64
	sandbox.LLMTokens
	Cost         sandbox.NanoUSD
	UnknownCalls int64
	UnknownCost  sandbox.NanoUSD
}

// TableName implements gorm's Tabler.
func (Day) TableName() string { return "llm_days" }

// Use returns the row's sums.
func (d *Day) Use() sandbox.LLMUse {
	return sandbox.LLMUse{
		Calls: d.Calls, Tokens: d.LLMTokens, Cost: d.Cost, UnknownCalls: d.UnknownCalls, Unknown: d.UnknownCost,
	}
}

// Month is a row of llm_months: the sum of an environment's calls on one route that began in one month.
type Month struct {
	EnvironmentID string `gorm:"primaryKey"`
	Month         string `gorm:"primaryKey"` // 2006-01
	Route         string `gorm:"primaryKey"`
	Calls         int64
	Tokens        int64
	Cost          sandbox.NanoUSD
}

// TableName implements gorm's Tabler.
func (Month) TableName() string { return "llm_months" }

// Cursor is a row of llm_cursors: how far the journal of an environment's gateway is recorded.
type Cursor struct {
	Instance      string `gorm:"primaryKey"`
	EnvironmentID string `gorm:"primaryKey"`
	Run           int64
	Line          int64
}

// TableName implements gorm's Tabler.
func (Cursor) TableName() string { return "llm_cursors" }

// Position returns the last recorded line.
func (c Cursor) Position() sandbox.GatewayPosition {
	return sandbox.GatewayPosition{Run: c.Run, Line: c.Line}
}

// Cursor returns how far the journal of an environment's gateway is recorded; the zero position if nothing is.
func (repo Rows) Cursor(instance, environmentID string) (Cursor, error) {
	c, err := storage.First[Cursor](repo.tx, "instance = ? AND environment_id = ?", instance, environmentID)
	if err != nil || c == nil {
		return Cursor{Instance: instance, EnvironmentID: environmentID}, err
	}
	return *c, nil
}

// SaveCursor stores how far it is recorded.
func (repo Rows) SaveCursor(c Cursor) error { return storage.Save(repo.tx, &c) }

// ForgetCursors forgets how far the journals of an environment are recorded, after their removal.
func (repo Rows) ForgetCursors(environmentID string) error {
	err := repo.db.Where("environment_id = ?", environmentID).Delete(&Cursor{}).Error
	return storage.Error("writing to the ledger", err)
}

// Begin makes sure that an environment with new LLM routes has a cursor as long as its gateway exists.
func (repo Rows) Begin(instance, environmentID string) error {
	err := repo.db.Clauses(clause.OnConflict{DoNothing: true}).
		Create(&Cursor{Instance: instance, EnvironmentID: environmentID}).Error
	return storage.Error("writing to the ledger", err)
}

// Brokered returns the environments of an instance that have or had LLM routes. Their gateways may have calls that are
// not recorded yet.
func (repo Rows) Brokered(instance string) ([]ledger.Environment, error) {
	return storage.Find[ledger.Environment](repo.db.Where("instance = ? AND status <> ?", instance,
		sandbox.EnvironmentDestroyed).
		Where("id IN (SELECT environment_id FROM llm_cursors WHERE instance = ?)", instance).Order("id"))
}

// IsBrokered reports whether Brokered returns an environment.
func (repo Rows) IsBrokered(instance, environmentID string) (bool, error) {
	c, err := storage.First[Cursor](repo.tx, "instance = ? AND environment_id = ?", instance, environmentID)
	return c != nil, err
}

// Record stores calls in the order of their lines. It adds calls that have ended to the sums, once, and returns those
// whose end was not recorded before.
func (repo Rows) Record(calls []sandbox.LLMCall) ([]Call, error) {
	if len(calls) == 0 {
		return nil, nil
	}
	latest := make(map[string]Call, len(calls))
	var ids []string
	for _, c := range calls {
		if _, seen := latest[c.ID]; !seen {
			ids = append(ids, c.ID)
		}
		latest[c.ID] = llmCall(c)
	}
	ended, err := repo.ended(ids)
	if err != nil {
		return nil, err
	}
	var rows, done []Call
	for _, id := range ids {
		row := latest[id]
		if ended[id] {
			continue
		}
		rows = append(rows, row)
		if row.Outcome != sandbox.LLMRunning {
			done = append(done, row)
		}
	}
	if len(rows) == 0 {
		return nil, nil
	}
	err = repo.db.Clauses(clause.OnConflict{Columns: []clause.Column{{Name: "id"}}, UpdateAll: true}).
		CreateInBatches(rows, storage.InsertBatch).Error
	if err != nil {
		return nil, storage.Error("recording LLM calls", err)
	}
	return done, repo.addSums(done)
}

// ended returns which of the calls have a recorded end.
func (repo Rows) ended(ids []string) (map[string]bool, error) {
	var known []string
	err := repo.db.Model(&Call{}).Where("id IN ? AND outcome <> ?", ids, sandbox.LLMRunning).
		Pluck("id", &known).Error
	ended := make(map[string]bool, len(known))
	for _, id := range known {
		ended[id] = true
	}
	return ended, storage.Error("reading LLM calls", err)
}

// addSums adds ended calls to their days and months.
func (repo Rows) addSums(calls []Call) error {
	if len(calls) == 0 {
		return nil
	}
	days, months := make(map[Day]sandbox.LLMUse), make(map[Month]sandbox.LLMUse)
	for i := range calls {
		c, use := &calls[i], calls[i].Domain().Use()
		day := c.StartedAt.Time().Format("2006-01-02")
		d := Day{Month: monthOf(day), EnvironmentID: c.EnvironmentID, LeaseID: c.LeaseID, Day: day,
			Route: c.Route, Model: c.Model, AgentDID: c.AgentDID}
		days[d] = days[d].Plus(use)
		m := Month{EnvironmentID: c.EnvironmentID, Month: monthOf(day), Route: c.Route}
		months[m] = months[m].Plus(use)
	}
	dayRows := make([]Day, 0, len(days))
	for d, use := range days {
		d.Calls, d.LLMTokens, d.Cost, d.UnknownCalls, d.UnknownCost =
			use.Calls, use.Tokens, use.Cost, use.UnknownCalls, use.Unknown
		dayRows = append(dayRows, d)
	}
	monthRows := make([]Month, 0, len(months))
	for m, use := range months {
		m.Calls, m.Tokens, m.Cost = use.Calls, use.Tokens.Total(), use.Cost
		monthRows = append(monthRows, m)
	}
	err := repo.db.Clauses(storage.AddTo("llm_days", []string{"month", "environment_id", "lease_id", "day", "route",
		"model"},
		"calls", "input", "cached_input", "cache_write", "output", "cost", "unknown_calls", "unknown_cost")).
		CreateInBatches(dayRows, storage.InsertBatch).Error
	if err == nil {
		err = repo.db.Clauses(
			storage.AddTo("llm_months", []string{"environment_id", "month", "route"}, "calls", "tokens", "cost")).
			CreateInBatches(monthRows, storage.InsertBatch).Error
	}
	return storage.Error("recording LLM calls", err)
}

// Months returns the sums of an environment's routes in a month ("2006-01").
func (repo Rows) Months(environmentID, month string) ([]Month, error) {
	return storage.Find[Month](repo.db.Where("environment_id = ? AND month = ?", environmentID, month))
}

// Reserved returns the total that is reserved for the running calls of an environment.
func (repo Rows) Reserved(environmentID string) (sandbox.NanoUSD, error) {
	var sum sandbox.NanoUSD
	err := repo.db.Model(&Call{}).Select("CAST(coalesce(sum(cost), 0) AS BIGINT)").
		Where("environment_id = ? AND outcome = ?", environmentID, sandbox.LLMRunning).Scan(&sum).Error
	return sum, storage.Error("reading LLM calls", err)
}

// Abandoned returns an environment's running calls whose sandboxes are gone.
func (repo Rows) Abandoned(environmentID string) ([]Call, error) {
	return storage.Find[Call](repo.db.Where("environment_id = ? AND outcome = ?", environmentID, sandbox.LLMRunning).
		Where("NOT EXISTS (SELECT 1 FROM sandboxes WHERE id = llm_calls.sandbox_id AND phase <> ?)", sandbox.PhaseGone))
}

// Days calls add for each sum from one day until before another ("2006-01-02", "" for no bound).
func (repo Rows) Days(from, to string, add func(d *Day)) error {
	db := repo.db
	if from != "" {
		db = db.Where("month >= ? AND day >= ?", monthOf(from), from)
	}
	if to != "" {
		db = db.Where("month <= ? AND day < ?", monthOf(to), to)
	}
	rows, err := storage.Find[Day](db)
	for i := range rows {
		add(&rows[i])
	}
	return err
}

// Between returns the ended calls that began within [from, to).
func (repo Rows) Between(from, to micro.Time) ([]Call, error) {
	return storage.Find[Call](repo.db.Where("started_at >= ? AND started_at < ? AND outcome <> ?", from, to,
		sandbox.LLMRunning))
}

// List returns the latest calls that a valid query selects.
func (repo Rows) List(q sandbox.LLMCallQuery) ([]Call, error) {
	db := repo.db.Order("started_at DESC, id DESC").Limit(q.Limit)
	if q.EnvironmentID != "" {
		db = db.Where("environment_id = ?", q.EnvironmentID)
	}
	if q.LeaseID != "" {
		db = db.Where("lease_id = ?", q.LeaseID)
	}
	if q.Session != "" {
		db = db.Where("session = ?", q.Session)
	}
	at, id, err := q.Last()
	if err != nil {
		return nil, err
	}
	if !at.IsZero() {
		db = db.Where("(started_at, id) < (?, ?)", micro.At(at), id)
	}
	return storage.Find[Call](db)
}

// OfSandboxes returns the use of models by sandbox.
func (repo Rows) OfSandboxes(ids []string) (map[string]sandbox.LLMUse, error) {
	type sum struct {
		SandboxID string
		Calls     int64
		sandbox.LLMTokens
		Cost, UnknownCost sandbox.NanoUSD
		UnknownCalls      int64
	}
	var rows []sum
	err := repo.db.Model(&Call{}).Select(`sandbox_id, count(*) AS calls, CAST(sum(input) AS BIGINT) AS input,
		CAST(sum(cached_input) AS BIGINT) AS cached_input, CAST(sum(cache_write) AS BIGINT) AS cache_write,
		CAST(sum(output) AS BIGINT) AS output, CAST(sum(cost) AS BIGINT) AS cost,
		CAST(sum(unknown) AS BIGINT) AS unknown_calls, CAST(sum(unknown * cost) AS BIGINT) AS unknown_cost`).
		Where("sandbox_id IN ? AND outcome <> ?", ids, sandbox.LLMRunning).Group("sandbox_id").Scan(&rows).Error
	use := make(map[string]sandbox.LLMUse, len(rows))
	for _, r := range rows {
		use[r.SandboxID] = sandbox.LLMUse{Calls: r.Calls, Tokens: r.LLMTokens, Cost: r.Cost, UnknownCalls: r.UnknownCalls,
			Unknown: r.UnknownCost}
	}
	return use, storage.Error("reading LLM calls", err)
}

// monthOf returns the name of a day's month.
func monthOf(day string) string { return day[:len("2006-01")] }
