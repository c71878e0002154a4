package billing

import (
	"cmp"
	"context"
	"slices"
	"time"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/ledger"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// Costs reports what usage costs. Whole days come from cost_days; what is not counted there yet,
// and days that the query cuts, from usage periods; all from one snapshot. All that used the accounts
// is read, whatever is selected, because it shares in their lines.
func (b *Service) Costs(ctx context.Context, q sandbox.CostQuery) (sandbox.CostReport, error) {
	q.GroupBy = cmp.Or(q.GroupBy, sandbox.CostByLease)
	switch q.GroupBy {
	case sandbox.CostByLease, sandbox.CostByEnvironment, sandbox.CostByAgent, sandbox.CostByDay, sandbox.CostByMonth:
	default:
		return sandbox.CostReport{}, sandbox.InvalidFields("cost query", []sandbox.Field{{Name: "group_by", Problem: "must be lease, environment, agent, day or month"}})
	}
	report := sandbox.CostReport{PriceBooks: b.books}
	r := costReader{window: windowOf(q), byDay: q.GroupBy == sandbox.CostByDay}
	err := b.store.Read(ctx, func(tx *ledger.Tx) error {
		report.AsOf = tx.Now.Time()
		return r.read(tx)
	})
	if err != nil {
		return sandbox.CostReport{}, err
	}
	t := costTable{query: q, rows: make(map[sandbox.CostRow]*costSum)}
	for _, a := range r.accounts.sorted() {
		s := a.settle(r.books)
		report.Accounts = append(report.Accounts, s.month())
		t.add(s)
	}
	report.Rows, report.Total = t.report()
	return report, nil
}

// window is the time of a query. What is read begins with the month in which it begins.
type window struct {
	from, to ledger.Time // from 0 is the beginning, to Never has no end
}

// stretch is the time from one moment to just before another.
type stretch struct{ from, to ledger.Time }

func windowOf(q sandbox.CostQuery) window {
	w := window{from: ledger.At(q.From), to: ledger.Never}
	if !q.To.IsZero() {
		w.to = max(ledger.At(q.To), w.from)
	}
	return w
}

// month returns when the month begins in which the window begins.
func (w window) month() ledger.Time {
	if w.from == 0 {
		return 0
	}
	begin := monthOf(w.from).from
	return begin
}

// lastMidnight returns when the day begins in which the window ends.
func (w window) lastMidnight() ledger.Time {
	if w.to == ledger.Never {
		return ledger.Never
	}
	return midnight(w.to)
}

// cutDays returns the days in which the window begins or ends, up to its end.
func (w window) cutDays() (days []stretch) {
	first, last := midnight(w.from), w.lastMidnight()
	if first != w.from {
		days = append(days, stretch{first, min(first.Add(oneDay), w.to)})
	}
	if w.to != ledger.Never && w.to != last && (last != first || first == w.from) {
		days = append(days, stretch{last, w.to})
	}
	return days
}

// dayRange is a number of whole days, read by day or by month.
type dayRange struct {
	stretch
	byDay bool
}

// wholeDays returns the days that the window does not cut. The month in which it begins within is
// read by day, because a lease's share in it is divided by days.
func (w window) wholeDays(byDay bool) (ranges []dayRange) {
	month, begin, last := w.month(), midnight(w.from), w.lastMidnight()
	end := begin
	if begin != w.from {
		end = begin.Add(oneDay)
	}
	next := end
	if month != w.from {
		next = monthOf(month).to
	}
	for _, r := range []dayRange{
		{stretch{month, begin}, true},
		{stretch{end, min(next, last)}, true},
		{stretch{max(end, next), last}, byDay},
	} {
		if r.from < r.to {
			ranges = append(ranges, r)
		}
	}
	return ranges
}

// check refuses to cut days of which single usage periods are not kept.
func (w window) check(since ledger.Time) error {
	var fields []sandbox.Field
	for _, day := range w.cutDays() {
		if day.from >= since {
			continue
		}
		name := "to"
		if day.from < w.from {
			name = "from"
		}
		fields = append(fields, sandbox.Field{Name: name, Problem: "must be at midnight UTC: costs of days that began before " +
			since.Time().Format(time.RFC3339) + " are kept by day"})
	}
	return sandbox.InvalidFields("cost query", fields)
}

// costReader collects what accounts used.
type costReader struct {
	window   window
	byDay    bool
	now      ledger.Time
	books    map[string]sandbox.PriceBook
	accounts accounts
}

// read collects what is counted by day, cut days, and what is not counted by day yet.
func (r *costReader) read(tx *ledger.Tx) (err error) {
	r.now, r.accounts = tx.Now, make(accounts)
	since, err := tx.Accounting().DetailSince()
	if err != nil {
		return err
	}
	if err := r.window.check(since); err != nil {
		return err
	}
	if r.books, err = tx.Accounting().PriceBooks(); err != nil {
		return err
	}
	if err := r.readDays(tx); err != nil {
		return err
	}
	for _, day := range r.window.cutDays() {
		periods, err := tx.Accounting().RolledPeriods(day.from, day.to)
		if err != nil {
			return err
		}
		r.addPeriods(periods, day)
	}
	periods, err := tx.Accounting().UnrolledPeriods()
	r.addPeriods(periods, stretch{r.window.month(), r.window.to})
	return err
}

// readDays collects whole days, and whose plans accounts were on.
func (r *costReader) readDays(tx *ledger.Tx) error {
	for _, days := range r.window.wholeDays(r.byDay) {
		inside := days.from >= r.window.from
		err := tx.Accounting().CostDays(firstDay(days.from), endDay(days.to), days.byDay, func(u ledger.LeaseUsage) {
			r.accounts.of(u.Backend, u.Instance, u.Month).add(&u, u.Usage, inside)
		})
		if err != nil {
			return err
		}
	}
	books, err := tx.Accounting().AccountDays(firstDay(r.window.month()), endDay(r.window.lastMidnight()))
	for _, b := range books {
		r.accounts.of(b.Backend, b.Instance, monthName(b.Day)).noteBook(b)
	}
	return err
}

// addPeriods adds what of usage periods lies in a stretch of time that begins at a midnight.
func (r *costReader) addPeriods(periods []ledger.UsagePeriod, in stretch) {
	for i := range periods {
		p := &periods[i]
		for x, begins := range partsIn(p, in, r.now) {
			book := r.books[p.PriceBookID]
			u := ledger.LeaseUsage{EnvironmentID: p.EnvironmentID, AgentDID: p.AgentDID, LeaseID: p.LeaseID, Day: dayOf(x.from), Usage: x.usage(p, book)}
			a := r.accounts.of(p.Backend, p.Instance, monthName(u.Day))
			a.noteBook(ledger.AccountDay{Instance: p.Instance, Day: u.Day, Backend: p.Backend, PriceBookID: p.PriceBookID, BegunAt: p.StartedAt})
			if begins {
				u.Generations = p.Generations
			}
			if x.from >= r.window.from {
				a.add(&u, u.Usage, true)
				continue
			}
			_, y := x.split(r.window.from)
			a.add(&u, y.usage(p, book), y.from < y.to)
		}
	}
}

// firstDay and endDay name the bounds of whole days, "" for none.
func firstDay(t ledger.Time) string {
	if t == 0 {
		return ""
	}
	return dayOf(t)
}

func endDay(t ledger.Time) string {
	if t == ledger.Never {
		return ""
	}
	return dayOf(t)
}

// monthName returns the month of a day, both by their names.
func monthName(day string) string { return day[:len("2006-01")] }

// costTable sums usage into the rows of a report.
type costTable struct {
	query sandbox.CostQuery
	rows  map[sandbox.CostRow]*costSum // keyed by a row that holds its group's names only
}

// costSum is what a row comes to.
type costSum struct {
	usage        ledger.Usage
	cost, shadow sandbox.Amounts
}

// add adds the selected part of a settled account.
func (t *costTable) add(s *settledAccount) {
	for l, d := range s.inside() {
		if (t.query.EnvironmentID != "" && t.query.EnvironmentID != l.environment) || (t.query.AgentDID != "" && t.query.AgentDID != l.agent) {
			continue
		}
		key := t.key(l.leaseKey, s.key.month, d.day)
		sum := t.rows[key]
		if sum == nil {
			sum = new(costSum)
			t.rows[key] = sum
		}
		sum.usage = sum.usage.Plus(d.usage)
		sum.cost, sum.shadow = sum.cost.Plus(d.cost), sum.shadow.Plus(d.shadow)
	}
}

// key returns the row to which usage belongs.
func (t *costTable) key(l leaseKey, month, day string) sandbox.CostRow {
	switch t.query.GroupBy {
	case sandbox.CostByEnvironment:
		return sandbox.CostRow{EnvironmentID: l.environment}
	case sandbox.CostByAgent:
		return sandbox.CostRow{AgentDID: l.agent}
	case sandbox.CostByDay:
		return sandbox.CostRow{Day: day}
	case sandbox.CostByMonth:
		return sandbox.CostRow{Month: month}
	default:
		return sandbox.CostRow{EnvironmentID: l.environment, AgentDID: l.agent, LeaseID: l.lease}
	}
}

// report returns the rows in the order of their names, and their sum.
func (t *costTable) report() ([]sandbox.CostRow, sandbox.CostRow) {
	rows := make([]sandbox.CostRow, 0, len(t.rows))
	var total costSum
	for key, sum := range t.rows {
		rows = append(rows, sum.row(key))
		total.usage = total.usage.Plus(sum.usage)
		total.cost, total.shadow = total.cost.Plus(sum.cost), total.shadow.Plus(sum.shadow)
	}
	slices.SortFunc(rows, func(x, y sandbox.CostRow) int {
		return cmp.Or(cmp.Compare(x.EnvironmentID, y.EnvironmentID), cmp.Compare(x.AgentDID, y.AgentDID), cmp.Compare(x.Day, y.Day), cmp.Compare(x.Month, y.Month))
	})
	return rows, total.row(sandbox.CostRow{})
}

// row gives a row of names its figures.
func (s *costSum) row(names sandbox.CostRow) sandbox.CostRow {
	u := &s.usage
	names.Generations = u.Generations
	names.AwakeSeconds, names.AsleepSeconds, names.CPUSeconds = u.Awake.Duration().D().Seconds(), u.Asleep.Duration().D().Seconds(), u.CPU.Duration().D().Seconds()
	names.Amounts, names.Shadow = s.cost, s.shadow
	return names
}
