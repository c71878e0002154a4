package leasing

import (
	"cmp"
	"context"
	"slices"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/ledger"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/sandbox"
)

// groupColumns are the columns of cost_days that name a group beside its month.
var groupColumns = map[sandbox.CostGroup][]string{
	sandbox.CostByLease:       {"environment_id", "agent_did", "lease_id"},
	sandbox.CostByEnvironment: {"environment_id"},
	sandbox.CostByAgent:       {"agent_did"},
	sandbox.CostByDay:         {"day"},
	sandbox.CostByMonth:       {},
}

// Costs implements sandbox.Reports. Whole days come from cost_days; what is not counted there yet,
// and parts of days, from usage periods; all from one snapshot.
func (e *Engine) Costs(ctx context.Context, q sandbox.CostQuery) (sandbox.CostReport, error) {
	q.GroupBy = cmp.Or(q.GroupBy, sandbox.CostByLease)
	if _, ok := groupColumns[q.GroupBy]; !ok {
		return sandbox.CostReport{}, sandbox.InvalidFields("cost query", []sandbox.Field{{Name: "group_by", Problem: "must be lease, environment, agent, day or month"}})
	}
	report := sandbox.CostReport{PriceBooks: e.books}
	err := e.store.Read(ctx, func(tx *ledger.Tx) error {
		report.AsOf = tx.Now.Time()
		r := costReport{query: q, window: windowOf(q), rows: make(map[sandbox.CostRow]*ledger.Usage)}
		if err := r.read(tx); err != nil {
			return err
		}
		report.Rows, report.Total = r.report()
		return nil
	})
	return report, err
}

// window is the time of a report: whole UTC days, and parts of days before and after them.
type window struct {
	from, to ledger.Time // from 0 is the beginning, to Never has no end
	days     stretch     // whole days
	edges    []stretch
}

// stretch is the time from one moment to just before another.
type stretch struct{ from, to ledger.Time }

func windowOf(q sandbox.CostQuery) window {
	w := window{from: ledger.At(q.From), to: ledger.Never}
	if !q.To.IsZero() {
		w.to = max(ledger.At(q.To), w.from)
	}
	w.days = stretch{midnight(w.from), w.to}
	if w.days.from < w.from {
		w.days.from += ledger.Time(oneDay)
	}
	if w.to != ledger.Never {
		w.days.to = midnight(w.to)
	}
	if w.days.from > w.days.to {
		w.days.from, w.days.to = w.from, w.from
		w.edges = []stretch{{w.from, w.to}}
		return w
	}
	for _, edge := range []stretch{{w.from, w.days.from}, {w.days.to, w.to}} {
		if edge.from < edge.to {
			w.edges = append(w.edges, edge)
		}
	}
	return w
}

// check refuses parts of days of which only the days are kept.
func (w window) check(since ledger.Time) error {
	var fields []sandbox.Field
	for _, edge := range w.edges {
		if edge.from >= since {
			continue
		}
		name := "to"
		if edge.from == w.from && midnight(w.from) != w.from {
			name = "from"
		}
		fields = append(fields, sandbox.Field{Name: name, Problem: "must be at midnight UTC: costs before " +
			since.Time().Format(timeFormat) + " are kept by UTC day"})
	}
	return sandbox.InvalidFields("cost query", fields)
}

// dayFilter selects the whole days of the window.
func (r *costReport) dayFilter() ledger.DayFilter {
	f := ledger.DayFilter{EnvironmentID: r.query.EnvironmentID, AgentDID: r.query.AgentDID}
	if r.window.days.from != 0 {
		f.From = dayOf(r.window.days.from)
	}
	if r.window.days.to != ledger.Never {
		f.To = dayOf(r.window.days.to)
	}
	return f
}

// costReport sums usage into the rows of a report.
type costReport struct {
	query  sandbox.CostQuery
	window window
	now    ledger.Time
	books  map[string]sandbox.PriceBook
	rows   map[sandbox.CostRow]*ledger.Usage // keyed by a row that holds its group's names only
}

// read sums what is counted by day, parts of days, and what is not counted by day yet.
func (r *costReport) read(tx *ledger.Tx) (err error) {
	r.now = tx.Now
	since, err := tx.DetailSince()
	if err != nil {
		return err
	}
	if err := r.window.check(since); err != nil {
		return err
	}
	if r.books, err = tx.PriceBooks(); err != nil {
		return err
	}
	if r.window.days.from < r.window.days.to {
		sums, err := tx.SumCostDays(r.dayFilter(), groupColumns[r.query.GroupBy]...)
		if err != nil {
			return err
		}
		for i := range sums {
			r.add(r.key(&sums[i]), sums[i].Usage)
		}
	}
	for _, edge := range r.window.edges {
		if err := r.addPeriods(tx, edge, true); err != nil {
			return err
		}
	}
	return r.addPeriods(tx, stretch{r.window.from, r.window.to}, false)
}

// addPeriods adds what of the selected periods lies in a stretch of time.
func (r *costReport) addPeriods(tx *ledger.Tx, in stretch, rolled bool) error {
	periods, err := tx.Periods(ledger.PeriodFilter{EnvironmentID: r.query.EnvironmentID, AgentDID: r.query.AgentDID,
		From: in.from, To: in.to, Rolled: rolled})
	for i := range periods {
		r.addPeriod(&periods[i], in)
	}
	return err
}

func (r *costReport) addPeriod(p *ledger.RatedPeriod, in stretch) {
	isFirst := p.IsFirst
	for day := range days(&p.UsagePeriod, r.now) {
		begins := isFirst && day.from >= in.from && day.from < in.to
		isFirst = false
		_, x := day.split(in.from)
		x, _ = x.split(in.to)
		if x.from == x.to && !begins {
			continue
		}
		u := x.usage(&p.UsagePeriod, r.books[p.PriceBookID])
		if begins {
			u.Generations = 1
		}
		name := dayOf(day.from)
		r.add(r.key(&ledger.CostSum{EnvironmentID: p.EnvironmentID, AgentDID: p.AgentDID, LeaseID: p.LeaseID, Day: name, Month: name[:len("2006-01")]}), u)
	}
}

// key returns the row to which usage belongs.
func (r *costReport) key(s *ledger.CostSum) sandbox.CostRow {
	switch r.query.GroupBy {
	case sandbox.CostByEnvironment:
		return sandbox.CostRow{EnvironmentID: s.EnvironmentID}
	case sandbox.CostByAgent:
		return sandbox.CostRow{AgentDID: s.AgentDID}
	case sandbox.CostByDay:
		return sandbox.CostRow{Day: s.Day}
	case sandbox.CostByMonth:
		return sandbox.CostRow{Month: s.Month}
	default:
		return sandbox.CostRow{EnvironmentID: s.EnvironmentID, AgentDID: s.AgentDID, LeaseID: s.LeaseID}
	}
}

func (r *costReport) add(key sandbox.CostRow, u ledger.Usage) {
	sum := r.rows[key]
	if sum == nil {
		sum = new(ledger.Usage)
		r.rows[key] = sum
	}
	sum.Add(u)
}

// report returns the rows in the order of their names, and their sum.
func (r *costReport) report() ([]sandbox.CostRow, sandbox.CostRow) {
	rows := make([]sandbox.CostRow, 0, len(r.rows))
	var total ledger.Usage
	for key, u := range r.rows {
		rows = append(rows, row(key, *u))
		total.Add(*u)
	}
	slices.SortFunc(rows, func(x, y sandbox.CostRow) int {
		return cmp.Or(cmp.Compare(x.EnvironmentID, y.EnvironmentID), cmp.Compare(x.AgentDID, y.AgentDID), cmp.Compare(x.Day, y.Day), cmp.Compare(x.Month, y.Month))
	})
	return rows, row(sandbox.CostRow{}, total)
}

// row gives a row of names its figures.
func row(names sandbox.CostRow, u ledger.Usage) sandbox.CostRow {
	names.Generations = u.Generations
	names.AwakeSeconds, names.AsleepSeconds, names.CPUSeconds = u.Awake.Duration().D().Seconds(), u.Asleep.Duration().D().Seconds(), u.CPU.Duration().D().Seconds()
	names.Cost, names.ShadowCost = u.Cost, u.ShadowCost
	return names
}
