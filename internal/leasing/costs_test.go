package leasing_test

import (
	"errors"
	"fmt"
	"math/big"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/driver"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/executor/fake"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/leasing"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/ledger"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/ledger/accounting"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/ledger/ledgertest"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/ledger/micro"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/pricing"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// TestCostsAreTheSumOfUsagePeriods compares reports of random usage, times, groups and filters with an independent sum
// of the usage periods, before, during and after the roll-up.
func TestCostsAreTheSumOfUsagePeriods(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(r *rapid.T) {
		b := newBill(t, r)
		for range rapid.IntRange(1, 12).Draw(r, "steps") {
			b.use()
			if rapid.IntRange(0, 2).Draw(r, "roll up") == 0 {
				b.rollUp()
			}
			b.checkSums()
		}
		for range 4 {
			q := b.query()
			before := b.check(q)
			b.rollUp()
			if after := b.check(q); after != before {
				r.Fatalf("%+v: %+v before usage was rolled up, %+v after", q, before, after)
			}
			b.use()
		}
		b.checkGroupsAgree()
		b.checkAccounts()
	})
}

// TestThePastIsReportedAsItWas asks for costs up to a time at that time, and again much later.
func TestThePastIsReportedAsItWas(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(r *rapid.T) {
		b := newBill(t, r)
		b.noCPU = true // CPU time is spread over its period, whose end is still unknown
		b.use()
		b.use()
		b.pass(time.Microsecond) // a period that begins at a time is not before it
		then := b.now
		was := b.costs(sandbox.CostQuery{})
		for range rapid.IntRange(1, 6).Draw(r, "steps") {
			b.use()
			b.rollUp()
		}
		if is := b.costs(sandbox.CostQuery{To: then}); is.Total != was.Total {
			r.Fatalf("up to %s it was %+v then and is %+v later", then, was.Total, is.Total)
		}
	})
}

// TestUsageIsRolledUpOnce makes several engines roll up the same usage at the same time, and again.
func TestUsageIsRolledUpOnce(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(r *rapid.T) {
		b := newBill(t, r)
		for range 5 {
			b.use()
		}
		want := b.check(sandbox.CostQuery{})
		done := make(chan error)
		for range 3 {
			go func() { done <- b.engine.RollUp(t.Context()) }()
		}
		if err := errors.Join(<-done, <-done, <-done); err != nil {
			r.Fatal(err)
		}
		b.rollUp()
		if got := b.check(sandbox.CostQuery{}); got != want {
			r.Fatalf("it cost %+v before and %+v after", want, got)
		}
	})
}

// bill is a ledger with sandboxes of random use.
type bill struct {
	*rapid.T
	now       time.Time
	shown     atomic.Int64 // the engine's clock in Unix microseconds; it reads while the test lets time pass
	store     *ledger.Store
	engine    *leasing.Service
	sandboxes []*ledger.Sandbox
	books     map[string]sandbox.PriceBook
	noCPU     bool
}

// billBooks alternate: one charges sleep, one includes more of something than is used.
var billBooks = []sandbox.PriceBook{
	func() sandbox.PriceBook {
		book := pricing.Cloudflare()
		book.AsleepMemoryGiBSecond = 3
		return book
	}(),
	{Name: "rack", MemoryGiBSecond: 777, CPUSecond: 31, DiskGBSecond: 1, PlanMonth: 7*sandbox.USD + 1,
		Included: sandbox.Allotment{MemoryGiBSeconds: 1e12, CPUSeconds: 1000, DiskGBSeconds: 1}},
}

func newBill(t *testing.T, r *rapid.T) *bill {
	b := &bill{T: r, books: make(map[string]sandbox.PriceBook), now: time.Date(2026, 8, 30, 22, 0, 0, 0, time.UTC)}
	b.pass(0)
	var err error
	path := filepath.Join(t.TempDir(), "ledger.db")
	shown := func() time.Time { return time.UnixMicro(b.shown.Load()).UTC() }
	if b.store, err = ledger.Open(t.Context(), "sqlite://"+path, ledger.Options{Now: shown}); err != nil {
		r.Fatal(err)
	}
	if b.engine, err = leasing.New(leasing.Config{
		Store:     b.store,
		Executors: []driver.Executor{fake.New("engine", nil)},
	}); err != nil {
		r.Fatal(err)
	}
	r.Cleanup(func() {
		if err := errors.Join(b.engine.Close(), b.store.Close()); err != nil {
			t.Error(err)
		}
	})
	b.write(func(tx *ledger.Tx) error {
		if err := errors.Join(ledgertest.Environment(tx, "e1"), ledgertest.Environment(tx, "e2")); err != nil {
			return err
		}
		for i := range 6 {
			s := ledgertest.Sandbox(tx, fmt.Sprint("e", i%2+1), int64(i+1))
			s.AgentDID = fmt.Sprint("did:plc:a", i%3)
			lease := sandbox.LeaseID(s.AgentDID, s.EnvironmentID)
			s.LeaseID = &lease
			s.MemoryMB = rapid.Int64Range(64, 32768).Draw(r, "memory")
			s.Instance = fmt.Sprint("engine", rapid.IntRange(1, 2).Draw(r, "engine"))
			b.sandboxes = append(b.sandboxes, s)
			err := tx.CreateSandbox(s)
			if err = errors.Join(err, tx.BeginGeneration(nil, s)); err != nil {
				return err
			}
		}
		return b.addBudget(tx, "e1")
	})
	return b
}

// addBudget gives an environment a budget that never refuses a lease.
func (b *bill) addBudget(tx *ledger.Tx, environmentID string) error {
	return tx.UpdateEnvironment(environmentID, func(env *ledger.Environment) error {
		env.Spec.Budget = &sandbox.Budget{Monthly: 1e9 * sandbox.USD}
		return nil
	})
}

func (b *bill) write(fn func(tx *ledger.Tx) error) {
	b.Helper()
	if err := b.store.Write(b.Context(), fn); err != nil {
		b.Fatal(err)
	}
}

func (b *bill) pass(d time.Duration) {
	b.now = b.now.Add(d)
	b.shown.Store(b.now.UnixMicro())
}

// use lets time pass, and changes the state of some sandboxes.
func (b *bill) use() {
	b.Helper()
	b.pass(time.Duration(rapid.Int64Range(0, int64(50*time.Hour/time.Microsecond)).Draw(b.T, "passes")) * time.Microsecond)
	b.write(func(tx *ledger.Tx) error {
		book := rapid.SampledFrom(billBooks).Draw(b.T, "book")
		row, err := accounting.In(tx).KeepPriceBook(sandbox.Docker, book)
		if err != nil {
			return err
		}
		b.books[row.ID] = book
		for _, s := range b.sandboxes {
			if rapid.Bool().Draw(b.T, "stays") {
				continue
			}
			if !b.noCPU {
				s.Meter.CPUMark = 0
				if err := accounting.In(tx).AddCPU(s, micro.Span(rapid.Int64Range(0, 1e11).Draw(b.T, "cpu")), tx.Now); err != nil {
					return err
				}
			}
			state := rapid.SampledFrom([]sandbox.Phase{
				sandbox.PhaseAwake, sandbox.PhaseAwake, sandbox.PhaseAsleep, sandbox.PhaseGone,
			}).Draw(b.T, "state")
			if err := accounting.In(tx).EnterState(s, state, tx.Now, row); err != nil {
				return err
			}
		}
		return nil
	})
}

func (b *bill) rollUp() {
	b.Helper()
	if err := b.engine.RollUp(b.Context()); err != nil {
		b.Fatal(err)
	}
}

func (b *bill) query() sandbox.CostQuery {
	moment := rapid.Custom(func(t *rapid.T) time.Time {
		switch rapid.IntRange(0, 2).Draw(t, "kind") {
		case 0:
			return time.Time{}
		case 1:
			return time.Date(2026, 8, 29+rapid.IntRange(0, 20).Draw(t, "day"), 0, 0, 0, 0, time.UTC)
		default:
			start := time.Date(2026, 8, 30, 0, 0, 0, 0, time.UTC)
			return start.Add(
				time.Duration(rapid.Int64Range(0, int64(20*24*time.Hour/time.Microsecond)).Draw(t, "moment")) * time.Microsecond)
		}
	})
	from, to := moment.Draw(b.T, "from"), moment.Draw(b.T, "to")
	if !to.IsZero() && to.Before(from) {
		from, to = to, from
	}
	return sandbox.CostQuery{
		EnvironmentID: rapid.SampledFrom([]string{"", "", "e1"}).Draw(b.T, "environment"),
		AgentDID:      rapid.SampledFrom([]string{"", "", "did:plc:a1"}).Draw(b.T, "agent"),
		From:          from, To: to,
		GroupBy: rapid.SampledFrom([]sandbox.CostGroup{
			sandbox.CostByLease, sandbox.CostByEnvironment, sandbox.CostByAgent, sandbox.CostByDay, sandbox.CostByMonth,
		}).Draw(b.T, "group"),
	}
}

func (b *bill) costs(q sandbox.CostQuery) sandbox.CostReport {
	b.Helper()
	report, err := b.engine.Costs(b.Context(), q)
	if err != nil {
		b.Fatal(err)
	}
	return report
}

// check compares a report with the usage periods, and returns its total.
func (b *bill) check(q sandbox.CostQuery) sandbox.CostRow {
	b.Helper()
	report := b.costs(q)
	var want, rows sandbox.CostRow
	for _, p := range b.periods(q) {
		b.addUp(&want, &p, q)
	}
	want.Generations = b.begun(q)
	for _, row := range report.Rows {
		rows.Generations += row.Generations
		rows.Gross, rows.Shadow = rows.Gross+row.Gross, rows.Shadow+row.Shadow
	}
	got := report.Total
	if got.Gross != want.Gross || got.Generations != want.Generations {
		b.Fatalf("%+v: the total is %s of %d generations; want %s of %d",
			q, got.Gross, got.Generations, want.Gross, want.Generations)
	}
	if rows.Gross != got.Gross || rows.Shadow != got.Shadow || rows.Generations != got.Generations {
		b.Fatalf("%+v: the rows sum up to %+v, the total is %+v", q, rows, got)
	}
	for _, pair := range [][2]float64{{got.AwakeSeconds, want.AwakeSeconds}, {got.AsleepSeconds, want.AsleepSeconds}} {
		if d := pair[0] - pair[1]; d > 1e-6 || d < -1e-6 {
			b.Fatalf("%+v: the total is %+v, want %+v", q, got, want)
		}
	}
	return got
}

// checkSums compares the costs of leases, and the spent part of this month's budget, with the usage periods. Both are
// read from sums of ended usage.
func (b *bill) checkSums() {
	b.Helper()
	for _, s := range b.sandboxes {
		lease, err := b.engine.GetLease(b.Context(), s.Lease())
		if err != nil {
			b.Fatal(err)
		}
		q := sandbox.CostQuery{EnvironmentID: s.EnvironmentID, AgentDID: s.AgentDID}
		if want := b.gross(q); lease.Cost != want {
			b.Fatalf("lease %s costs %s; its usage periods cost %s", lease.ID, lease.Cost, want)
		}
	}
	env, err := b.engine.GetEnvironment(b.Context(), "e1")
	if err != nil {
		b.Fatal(err)
	}
	month := time.Date(b.now.Year(), b.now.Month(), 1, 0, 0, 0, 0, time.UTC)
	if want := b.gross(sandbox.CostQuery{EnvironmentID: "e1", From: month}); env.BudgetUse.Spent != want {
		b.Fatalf("of the budget of %s %s are spent; the usage periods cost %s",
			env.BudgetUse.Month, env.BudgetUse.Spent, want)
	}
}

// gross sums the selected usage periods.
func (b *bill) gross(q sandbox.CostQuery) sandbox.NanoUSD {
	b.Helper()
	var sum sandbox.CostRow
	for _, p := range b.periods(q) {
		b.addUp(&sum, &p, q)
	}
	return sum.Gross
}

// periods returns the selected sandboxes' usage periods.
func (b *bill) periods(q sandbox.CostQuery) (periods []accounting.UsagePeriod) {
	var ids []string
	for _, s := range b.sandboxes {
		if (q.EnvironmentID == "" || q.EnvironmentID == s.EnvironmentID) && (q.AgentDID == "" || q.AgentDID == s.AgentDID) {
			ids = append(ids, s.ID)
		}
	}
	err := b.store.Read(b.Context(), func(tx *ledger.Tx) (err error) {
		periods, err = accounting.In(tx).PeriodsOf(ids)
		return err
	})
	if err != nil {
		b.Fatal(err)
	}
	return periods
}

// begun counts the selected sandboxes whose first period began in a query's time.
func (b *bill) begun(q sandbox.CostQuery) (n int64) {
	seen := make(map[string]bool)
	for _, p := range b.periods(q) { // by id
		at := p.StartedAt.Time()
		if !seen[p.SandboxID] && !at.Before(q.From) && (q.To.IsZero() || at.Before(q.To)) {
			n++
		}
		seen[p.SandboxID] = true
	}
	return n
}

// addUp adds the cost of a period day by day, in fractions, each rounded half up. Its CPU time is on its first day.
func (b *bill) addUp(sum *sandbox.CostRow, p *accounting.UsagePeriod, q sandbox.CostQuery) {
	end := p.EndedAt.Time()
	if p.EndedAt == 0 {
		end = b.now
	}
	cpu := p.CPU.Duration().D().Microseconds()
	if at := p.StartedAt.Time(); !at.Before(end) && !at.Before(q.From) && (q.To.IsZero() || at.Before(q.To)) {
		b.addPart(sum, p, 0, cpu) // of length zero
	}
	share := func(cpu int64, part, whole time.Duration) int64 {
		n := new(big.Int).Mul(big.NewInt(cpu), big.NewInt(part.Microseconds()))
		return n.Quo(n, big.NewInt(whole.Microseconds())).Int64()
	}
	for from := p.StartedAt.Time(); from.Before(end); {
		to := from.Truncate(24 * time.Hour).Add(24 * time.Hour)
		if end.Before(to) {
			to = end
		}
		days := cpu
		cpu = 0
		x, y := from, to
		if x.Before(q.From) {
			x = q.From
			if x.After(y) {
				x = y
			}
			days -= share(days, x.Sub(from), to.Sub(from))
		}
		if !q.To.IsZero() && q.To.Before(y) {
			y = q.To
			if y.Before(x) {
				y = x
			}
			if x.Before(to) {
				days = share(days, y.Sub(x), to.Sub(x))
			}
		}
		if x.Before(y) {
			b.addPart(sum, p, y.Sub(x), days)
		}
		from = to
	}
}

func (b *bill) addPart(sum *sandbox.CostRow, p *accounting.UsagePeriod, length time.Duration, cpuMicros int64) {
	book := b.books[p.PriceBookID]
	perGiB, perGB, perCPU := int64(book.MemoryGiBSecond), int64(book.DiskGBSecond), int64(book.CPUSecond)
	if p.State == sandbox.PhaseAsleep {
		perGiB, perGB = int64(book.AsleepMemoryGiBSecond), int64(book.AsleepDiskGBSecond)
		sum.AsleepSeconds += length.Seconds()
	} else {
		sum.AwakeSeconds += length.Seconds()
	}
	charge := func(terms ...[3]int64) {
		cost := big.NewRat(1, 2)
		for _, term := range terms {
			x := new(big.Int).Mul(big.NewInt(term[0]), big.NewInt(term[1]))
			cost.Add(cost, new(big.Rat).SetFrac(x, big.NewInt(term[2])))
		}
		sum.Gross += sandbox.NanoUSD(new(big.Int).Quo(cost.Num(), cost.Denom()).Int64())
	}
	memory, disk := [3]int64{p.MemoryMB * perGiB, length.Microseconds(), 1024e6}, [3]int64{
		p.DiskMB * perGB, length.Microseconds(), 1000e6,
	}
	charge([3]int64{perCPU, cpuMicros, 1e6})
	if p.State == sandbox.PhaseAsleep {
		charge(memory, disk)
		return
	}
	charge(memory)
	charge(disk)
}
