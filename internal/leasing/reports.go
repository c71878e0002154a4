package leasing

import (
	"cmp"
	"context"
	"math/bits"
	"slices"
	"time"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/ledger"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/pricing"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/sandbox"
)

// ListEvents implements sandbox.Reports.
func (e *Engine) ListEvents(ctx context.Context, f sandbox.EventFilter) (events []sandbox.Event, err error) {
	err = e.store.Read(ctx, func(tx *ledger.Tx) error {
		events, err = tx.Events(f)
		return err
	})
	return events, err
}

// FollowEvents implements sandbox.Reports.
func (e *Engine) FollowEvents(ctx context.Context, f sandbox.EventFilter, yield func(sandbox.Event) error) error {
	f.Limit = 0
	for {
		changed := e.store.Changed()
		events, err := e.ListEvents(ctx, f)
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if err != nil {
			return err
		}
		for _, ev := range events {
			if err := yield(ev); err != nil {
				return err
			}
			f.AfterID = ev.ID
		}
		if len(events) == sandbox.MaxPage {
			continue
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return ctx.Err()
		case <-e.life.Done():
			return sandbox.Errorf(sandbox.Unavailable, "the lease engine is closing")
		}
	}
}

// ListDrift implements sandbox.Reports.
func (e *Engine) ListDrift(ctx context.Context, f sandbox.DriftFilter) (findings []sandbox.DriftFinding, err error) {
	err = e.store.Read(ctx, func(tx *ledger.Tx) error {
		findings, err = tx.Drift(f)
		return err
	})
	return findings, err
}

// Costs implements sandbox.Reports.
func (e *Engine) Costs(ctx context.Context, q sandbox.CostQuery) (sandbox.CostReport, error) {
	cmpDefault(&q.GroupBy, sandbox.CostByLease)
	if !slices.Contains([]sandbox.CostGroup{sandbox.CostByLease, sandbox.CostByEnvironment, sandbox.CostByAgent, sandbox.CostByDay, sandbox.CostByMonth}, q.GroupBy) {
		return sandbox.CostReport{}, sandbox.InvalidFields("cost query", []sandbox.Field{{Name: "group_by", Problem: "must be lease, environment, agent, day or month"}})
	}
	report := sandbox.CostReport{PriceBooks: e.books}
	err := e.store.Read(ctx, func(tx *ledger.Tx) error {
		report.AsOf = tx.Now.Time()
		periods, err := tx.Periods(q)
		if err != nil {
			return err
		}
		books, err := tx.PriceBooks()
		if err != nil {
			return err
		}
		a := account{query: q, now: tx.Now, books: books, rows: make(map[sandbox.CostRow]*tally)}
		for i := range periods {
			a.add(&periods[i])
		}
		report.Rows, report.Total = a.report()
		return nil
	})
	return report, err
}

// costsOf returns the gross cost so far of each of the given sandboxes.
func (e *Engine) costsOf(tx *ledger.Tx, sandboxIDs []string) (map[string]sandbox.NanoUSD, error) {
	periods, err := tx.PeriodsOf(sandboxIDs)
	if err != nil {
		return nil, err
	}
	books, err := tx.PriceBooks()
	if err != nil {
		return nil, err
	}
	costs := make(map[string]sandbox.NanoUSD)
	for i := range periods {
		p := &periods[i]
		part := whole(p, tx.Now)
		costs[p.SandboxID] += part.cost(books[p.PriceBookID], p)
	}
	return costs, nil
}

// part is the stretch of a usage period that falls to one row of a report.
type part struct {
	from, to ledger.Time
	cpu      ledger.Span
}

// whole returns all of a period, an open one up to now.
func whole(p *ledger.UsagePeriod, now ledger.Time) part {
	end := p.EndedAt
	if end == 0 {
		end = max(now, p.StartedAt)
	}
	return part{from: p.StartedAt, to: end, cpu: p.CPU}
}

// split cuts a part at a moment; CPU time is shared by length, and none is lost.
func (x part) split(at ledger.Time) (before, after part) {
	at = min(max(at, x.from), x.to)
	before, after = part{from: x.from, to: at}, part{from: at, to: x.to, cpu: x.cpu}
	if at > x.from {
		hi, lo := bits.Mul64(uint64(x.cpu), uint64(at-x.from))
		share, _ := bits.Div64(hi, lo, uint64(x.to-x.from))
		before.cpu = ledger.Span(share)
		after.cpu -= before.cpu
	}
	return before, after
}

func (x part) length() time.Duration { return time.Duration(x.to-x.from) * time.Microsecond }

func (x part) cost(b sandbox.PriceBook, p *ledger.UsagePeriod) sandbox.NanoUSD {
	awake, asleep := x.length(), time.Duration(0)
	if p.State == sandbox.PhaseAsleep {
		awake, asleep = asleep, awake
	}
	return pricing.Cost(b, p.Resources(), awake, asleep, x.cpu.Duration().D())
}

// account sums periods into the rows of a report.
type account struct {
	query sandbox.CostQuery
	now   ledger.Time
	books map[string]sandbox.PriceBook
	rows  map[sandbox.CostRow]*tally // keyed by a row that holds its group's names only
}

type tally struct {
	row       sandbox.CostRow
	sandboxes map[string]struct{}
}

func (a *account) add(p *ledger.UsagePeriod) {
	x := whole(p, a.now)
	if !a.query.From.IsZero() {
		_, x = x.split(ledger.At(a.query.From))
	}
	if !a.query.To.IsZero() {
		x, _ = x.split(ledger.At(a.query.To))
	}
	for x.to > x.from {
		key, until := a.key(p, x.from)
		var head part
		head, x = x.split(until)
		a.sum(key, p, head)
	}
}

// key returns the row to which a moment of a period belongs, and until when it does.
func (a *account) key(p *ledger.UsagePeriod, at ledger.Time) (sandbox.CostRow, ledger.Time) {
	t := at.Time()
	switch a.query.GroupBy {
	case sandbox.CostByEnvironment:
		return sandbox.CostRow{EnvironmentID: p.EnvironmentID}, ledger.Never
	case sandbox.CostByAgent:
		return sandbox.CostRow{AgentDID: p.AgentDID}, ledger.Never
	case sandbox.CostByDay:
		return sandbox.CostRow{Day: t.Format(time.DateOnly)}, ledger.At(time.Date(t.Year(), t.Month(), t.Day()+1, 0, 0, 0, 0, time.UTC))
	case sandbox.CostByMonth:
		return sandbox.CostRow{Month: t.Format("2006-01")}, ledger.At(time.Date(t.Year(), t.Month()+1, 1, 0, 0, 0, 0, time.UTC))
	default:
		return sandbox.CostRow{EnvironmentID: p.EnvironmentID, AgentDID: p.AgentDID, LeaseID: p.LeaseID}, ledger.Never
	}
}

func (a *account) sum(key sandbox.CostRow, p *ledger.UsagePeriod, x part) {
	t := a.rows[key]
	if t == nil {
		t = &tally{row: key, sandboxes: make(map[string]struct{})}
		a.rows[key] = t
	}
	t.sandboxes[p.SandboxID] = struct{}{}
	if p.State == sandbox.PhaseAwake {
		t.row.AwakeSeconds += x.length().Seconds()
	} else {
		t.row.AsleepSeconds += x.length().Seconds()
	}
	t.row.CPUSeconds += x.cpu.Duration().D().Seconds()
	t.row.Cost += x.cost(a.books[p.PriceBookID], p)
	t.row.ShadowCost += x.cost(pricing.Cloudflare(), p)
}

// report returns the rows in the order of their names, and their sum.
func (a *account) report() ([]sandbox.CostRow, sandbox.CostRow) {
	rows := make([]sandbox.CostRow, 0, len(a.rows))
	var total sandbox.CostRow
	for _, t := range a.rows {
		t.row.Generations = int64(len(t.sandboxes))
		rows = append(rows, t.row)
		total.AwakeSeconds += t.row.AwakeSeconds
		total.AsleepSeconds += t.row.AsleepSeconds
		total.CPUSeconds += t.row.CPUSeconds
		total.Cost += t.row.Cost
		total.ShadowCost += t.row.ShadowCost
		total.Generations += t.row.Generations
	}
	slices.SortFunc(rows, func(x, y sandbox.CostRow) int {
		return cmp.Or(cmp.Compare(x.EnvironmentID, y.EnvironmentID), cmp.Compare(x.AgentDID, y.AgentDID), cmp.Compare(x.Day, y.Day), cmp.Compare(x.Month, y.Month))
	})
	return rows, total
}

func cmpDefault[T comparable](v *T, def T) {
	var zero T
	if *v == zero {
		*v = def
	}
}
