package billing

import (
	"cmp"
	"context"
	"slices"
	"time"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/ledger"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/ledger/accounting"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/ledger/micro"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/ledger/modelcalls"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// Costs reports the cost of usage. Whole days come from cost_days. Usage that is not there yet, and days that the query
// cuts, come from usage periods. All reads use one snapshot of the ledger. Accounts are reported whole, so it reads all
// their usage, whatever the query selects.
func (b *Service) Costs(ctx context.Context, q sandbox.CostQuery) (sandbox.CostReport, error) {
	if err := q.Validate(); err != nil {
		return sandbox.CostReport{}, err
	}
	q.GroupBy = cmp.Or(q.GroupBy, sandbox.CostByLease)
	t := costTable{query: q, rows: make(map[sandbox.CostRow]*costSum)}
	report := sandbox.CostReport{PriceBooks: b.books}
	r := costReader{window: windowOf(q), byDay: q.GroupBy == sandbox.CostByDay, table: &t}
	err := b.store.Read(ctx, func(tx *ledger.Tx) error {
		report.AsOf = tx.Now.Time()
		if err := t.readLabels(tx); err != nil {
			return err
		}
		return r.read(tx)
	})
	if err != nil {
		return sandbox.CostReport{}, err
	}
	report.Accounts = r.accounts.months(r.books)
	report.Rows, report.Total = t.report()
	return report, nil
}

// window is the time of a query. Reading starts at the beginning of its first month.
type window struct {
	from, to micro.Time // from 0: the beginning; to Never: no end
}

// stretch is a half-open interval [from, to).
type stretch struct{ from, to micro.Time }

// windowOf returns the time of a query. No usage is from before 1970, where times of the ledger begin.
func windowOf(q sandbox.CostQuery) window {
	w := window{from: max(micro.At(q.From), 0), to: micro.Never}
	if !q.To.IsZero() {
		w.to = max(micro.At(q.To), w.from)
	}
	return w
}

// month returns the start of the month that contains the start of the window.
func (w window) month() micro.Time {
	if w.from == 0 {
		return 0
	}
	begin := monthOf(w.from).from
	return begin
}

// lastMidnight returns the start of the day that contains the end of the window.
func (w window) lastMidnight() micro.Time {
	if w.to == micro.Never {
		return micro.Never
	}
	return w.to.Midnight()
}

// cutDays returns the days that the window cuts, up to its end.
func (w window) cutDays() (days []stretch) {
	first, last := w.from.Midnight(), w.lastMidnight()
	if first != w.from {
		days = append(days, stretch{first, min(first.Add(micro.Day), w.to)})
	}
	if w.to != micro.Never && w.to != last && (last != first || first == w.from) {
		days = append(days, stretch{last, w.to})
	}
	return days
}

// dayRange is a range of whole days, read by day or by month.
type dayRange struct {
	stretch
	byDay bool
}

// wholeDays returns the days that the window does not cut, and those of its first month before it.
func (w window) wholeDays(byDay bool) (ranges []dayRange) {
	begin := w.from.Midnight()
	end := begin
	if begin != w.from {
		end = begin.Add(micro.Day)
	}
	for _, r := range []dayRange{{stretch{w.month(), begin}, false}, {stretch{end, w.lastMidnight()}, byDay}} {
		if r.from < r.to {
			ranges = append(ranges, r)
		}
	}
	return ranges
}

// check rejects a window that cuts days whose single usage periods are no longer kept.
func (w window) check(since micro.Time) error {
	var fields []sandbox.Field
	for _, day := range w.cutDays() {
		if day.from >= since {
			continue
		}
		name := "to"
		if day.from < w.from {
			name = "from"
		}
		fields = append(fields, sandbox.Field{
			Name: name,
			Problem: "must be at midnight UTC: costs of days that began before " +
				since.Time().Format(time.RFC3339) + " are kept by day",
		})
	}
	return sandbox.InvalidFields("cost query", fields)
}

// costReader collects the usage of accounts, and adds what the query selects to the table.
type costReader struct {
	window   window
	byDay    bool
	now      micro.Time
	books    map[string]sandbox.PriceBook
	accounts accounts
	table    *costTable
}

// leaseKey identifies a lease. A warm pool has only an environment.
type leaseKey struct{ environment, agent, lease string }

func keyOf(u *accounting.LeaseUsage) leaseKey {
	return leaseKey{u.EnvironmentID, u.AgentDID, u.LeaseID}
}

// read collects the days in cost_days, the cut days, and usage that is not in cost_days yet.
func (r *costReader) read(tx *ledger.Tx) (err error) {
	r.now, r.accounts = tx.Now, make(accounts)
	since, err := accounting.In(tx).DetailSince()
	if err != nil {
		return err
	}
	if err := r.window.check(since); err != nil {
		return err
	}
	if r.books, err = accounting.In(tx).PriceBooks(); err != nil {
		return err
	}
	if err := r.readDays(tx); err != nil {
		return err
	}
	for _, day := range r.window.cutDays() {
		periods, err := accounting.In(tx).RolledPeriods(day.from, day.to)
		if err != nil {
			return err
		}
		r.addPeriods(periods, day)
	}
	periods, err := accounting.In(tx).UnrolledPeriods()
	if err != nil {
		return err
	}
	r.addPeriods(periods, stretch{r.window.month(), r.window.to})
	return r.readCalls(tx)
}

// readCalls collects the model calls within the window. They have sums by day, so only the days that the window cuts
// are read call by call.
func (r *costReader) readCalls(tx *ledger.Tx) error {
	cut := r.window.cutDays()
	for _, day := range cut {
		calls, err := modelcalls.In(tx).Between(max(day.from, r.window.from), day.to)
		if err != nil {
			return err
		}
		for i := range calls {
			c := &calls[i]
			r.table.addCalls(leaseKey{c.EnvironmentID, c.AgentDID, c.LeaseID}, dayOf(c.StartedAt), c.Domain().Use())
		}
	}
	from := r.window.from.Midnight()
	if from != r.window.from {
		from = from.Add(micro.Day)
	}
	to := r.window.lastMidnight()
	if from >= to {
		return nil
	}
	return modelcalls.In(tx).Days(firstDay(from), endDay(to), func(d *modelcalls.Day) {
		r.table.addCalls(leaseKey{d.EnvironmentID, d.AgentDID, d.LeaseID}, d.Day, d.Use())
	})
}

// readDays collects whole days, and the plans of accounts.
func (r *costReader) readDays(tx *ledger.Tx) error {
	for _, days := range r.window.wholeDays(r.byDay) {
		inside := days.from >= r.window.from
		err := accounting.In(tx).CostDays(firstDay(days.from), endDay(days.to), days.byDay, func(u accounting.LeaseUsage) {
			a := r.accounts.of(u.Backend, u.Instance, u.Month)
			a.used = a.used.Plus(u.Usage)
			if inside {
				r.table.add(keyOf(&u), u.Month, u.Day, u.Usage)
			}
		})
		if err != nil {
			return err
		}
	}
	books, err := accounting.In(tx).AccountDays(firstDay(r.window.month()), endDay(r.window.lastMidnight()))
	for _, b := range books {
		r.accounts.of(b.Backend, b.Instance, monthName(b.Day)).noteBook(b)
	}
	return err
}

// addPeriods adds the parts of usage periods within a stretch that starts at midnight.
func (r *costReader) addPeriods(periods []accounting.UsagePeriod, in stretch) {
	for i := range periods {
		p := &periods[i]
		for x, begins := range partsIn(p, in, r.now) {
			book := r.books[p.PriceBookID]
			u := accounting.LeaseUsage{
				EnvironmentID: p.EnvironmentID,
				AgentDID:      p.AgentDID,
				LeaseID:       p.LeaseID,
				Day:           dayOf(x.from),
				Usage:         x.usage(p, book),
			}
			a := r.accounts.of(p.Backend, p.Instance, monthName(u.Day))
			a.noteBook(accounting.AccountDay{
				Instance:    p.Instance,
				Day:         u.Day,
				Backend:     p.Backend,
				PriceBookID: p.PriceBookID,
				BegunAt:     p.BegunAt(),
			})
			if begins {
				u.Generations = p.Generations
			}
			a.used = a.used.Plus(u.Usage)
			if x.from >= r.window.from {
				r.table.add(keyOf(&u), monthName(u.Day), u.Day, u.Usage)
				continue
			}
			if _, y := x.split(r.window.from); y.from < y.to {
				r.table.add(keyOf(&u), monthName(u.Day), u.Day, y.usage(p, book))
			}
		}
	}
}

// firstDay and endDay name the bounds of whole days, "" for none.
func firstDay(t micro.Time) string {
	if t == 0 {
		return ""
	}
	return dayOf(t)
}

func endDay(t micro.Time) string {
	if t == micro.Never {
		return ""
	}
	return dayOf(t)
}

// monthName returns the name of a day's month.
func monthName(day string) string { return day[:len("2006-01")] }

// costTable sums usage into the rows of a report.
type costTable struct {
	query sandbox.CostQuery
	rows  map[sandbox.CostRow]*costSum // keyed by a row with only the names of its group
	// labels are the labels of leases and, for usage in a warm pool, of environments. They are read only if the query
	// needs them.
	labels ledger.Labels
}

// readLabels reads the labels, if the query needs them.
func (t *costTable) readLabels(tx *ledger.Tx) (err error) {
	if _, byLabel := t.query.GroupBy.Label(); byLabel || t.query.Labels != "" {
		t.labels, err = tx.Labels()
	}
	return err
}

// costSum is the sum of a row.
type costSum struct {
	usage accounting.Usage
	llm   sandbox.LLMUse
}

// add adds usage, if it is selected.
func (t *costTable) add(l leaseKey, month, day string, u accounting.Usage) {
	if sum := t.sum(l, month, day); sum != nil {
		sum.usage = sum.usage.Plus(u)
	}
}

// addCalls adds model calls, if they are selected.
func (t *costTable) addCalls(l leaseKey, day string, use sandbox.LLMUse) {
	if sum := t.sum(l, monthName(day), day); sum != nil {
		sum.llm = sum.llm.Plus(use)
	}
}

// sum returns the sum of the row that usage belongs to, nil if the query does not select it.
func (t *costTable) sum(l leaseKey, month, day string) *costSum {
	if (t.query.EnvironmentID != "" && t.query.EnvironmentID != l.environment) ||
		(t.query.AgentDID != "" && t.query.AgentDID != l.agent) ||
		(t.query.Labels != "" && !t.query.Labels.Selects(t.labels.Of(l.lease, l.environment))) {
		return nil
	}
	key := t.key(l, month, day)
	if t.rows[key] == nil {
		t.rows[key] = new(costSum)
	}
	return t.rows[key]
}

// key returns the row that usage belongs to.
func (t *costTable) key(l leaseKey, month, day string) sandbox.CostRow {
	if label, byLabel := t.query.GroupBy.Label(); byLabel {
		return sandbox.CostRow{Label: t.labels.Of(l.lease, l.environment)[label]}
	}
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

// report returns the rows, sorted by name, and their sum.
func (t *costTable) report() ([]sandbox.CostRow, sandbox.CostRow) {
	rows := make([]sandbox.CostRow, 0, len(t.rows))
	var total costSum
	for key, sum := range t.rows {
		rows = append(rows, sum.row(key))
		total.usage = total.usage.Plus(sum.usage)
		total.llm = total.llm.Plus(sum.llm)
	}
	slices.SortFunc(rows, func(x, y sandbox.CostRow) int {
		return cmp.Or(cmp.Compare(x.EnvironmentID, y.EnvironmentID), cmp.Compare(x.AgentDID, y.AgentDID),
			cmp.Compare(x.Day, y.Day), cmp.Compare(x.Month, y.Month), cmp.Compare(x.Label, y.Label))
	})
	return rows, total.row(sandbox.CostRow{})
}

// row fills the figures into a row that has names only.
func (s *costSum) row(names sandbox.CostRow) sandbox.CostRow {
	u := &s.usage
	names.Generations = u.Generations
	names.AwakeSeconds, names.AsleepSeconds, names.CPUSeconds = u.Awake.Duration().D().Seconds(), u.Asleep.Duration().
		D().Seconds(), u.CPU.Duration().D().Seconds()
	names.Gross, names.Shadow = u.Cost.Total(), u.Shadow.Total()
	names.LLM, names.Total = s.llm, names.Gross+s.llm.Cost
	return names
}
