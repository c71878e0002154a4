package leasing_test

import (
	"errors"
	"fmt"
	"path/filepath"
	"testing"
	"time"

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

// checkAmounts checks that an allotment never exceeds the gross amount, and that the net amount is correct.
func (b *bill) checkAmounts(a sandbox.Amounts) {
	b.Helper()
	if a.Included < 0 || a.Included > a.Gross || a.PlanFee < 0 || a.Net != a.Gross-a.Included+a.PlanFee {
		b.Fatalf("the amounts are %+v", a)
	}
}

// checkGroupsAgree compares all groupings of the same random query, to the nano-dollar.
func (b *bill) checkGroupsAgree() {
	b.Helper()
	for range 2 {
		q := b.query()
		want := b.costs(q)
		for _, q.GroupBy = range []sandbox.CostGroup{
			sandbox.CostByLease, sandbox.CostByEnvironment, sandbox.CostByAgent, sandbox.CostByDay, sandbox.CostByMonth,
		} {
			got := b.costs(q)
			if got.Total != want.Total {
				b.Fatalf("%+v: the total is %+v, grouped otherwise %+v", q, got.Total, want.Total)
			}
			if fmt.Sprint(got.Accounts) != fmt.Sprint(want.Accounts) {
				b.Fatalf("%+v: the accounts are\n%+v, grouped otherwise\n%+v", q, got.Accounts, want.Accounts)
			}
		}
	}
}

// checkAccounts checks that full reports sum up to the accounts, and partial reports to the whole.
func (b *bill) checkAccounts() {
	b.Helper()
	q := sandbox.CostQuery{To: b.query().To}
	all := b.costs(q)
	var cost, shadow sandbox.NanoUSD
	for _, a := range all.Accounts {
		cost, shadow = cost+a.Gross, shadow+a.Shadow.Gross
		for _, s := range []sandbox.Statement{a.Statement, a.Shadow} {
			b.checkAmounts(s.Amounts)
			var gross, included sandbox.NanoUSD
			for _, l := range s.Lines {
				gross, included = gross+l.Gross, included+l.Included
			}
			if gross != s.Gross || included != s.Included {
				b.Fatalf("the lines of %+v sum up to %s and %s", s, gross, included)
			}
		}
	}
	if all.Total.Gross != cost || all.Total.Shadow != shadow {
		b.Fatalf("until %v the total is %s, %s; the accounts used %s, %s",
			q.To, all.Total.Gross, all.Total.Shadow, cost, shadow)
	}
	var parts sandbox.NanoUSD
	for _, q.EnvironmentID = range []string{"e1", "e2"} {
		parts += b.costs(q).Total.Gross
	}
	if parts != cost {
		b.Fatalf("until %v the environments cost %s, the accounts used %s", q.To, parts, cost)
	}
}

// TestEightEqualAgentsCost15Dollars61 is the example that this project began with, as usage: 8
// agents, each awake 4 hours a day for 30 days in a sandbox of size "basic" (1/4 CPU, 1 GiB, 4 GB)
// at 10 % of its CPU, and asleep otherwise.
//
//	memory  8 x 1 GiB x 4 h x 30     =   960 GiB-hours,    25 included: 935 x 3600 x $0.0000025   = $8.41500
//	CPU     8 x 0.025 x 4 h x 30     = 1,440 vCPU-minutes, 375 included: 1,065 x 60 x $0.00002    = $1.27800
//	disk    8 x 4 GB x 4 h x 30      = 3,840 GB-hours,    200 included: 3,640 x 3600 x $0.00000007 = $0.91728
//	plan                                                                                          = $5.00000
//	                                                                                    in all    = $15.61028
//
// (Its author took $0.00025 for a GB-hour of disk, which is $0.000252: $0.91 in place of $0.92. In
// all it is $15.61 by both.)
func TestEightEqualAgentsCost15Dollars61(t *testing.T) {
	t.Parallel()
	month := time.Date(2026, 4, 1, 0, 0, 0, 0, time.UTC)
	m := newMonth(t, month.AddDate(0, 0, 40))
	size, _ := sandbox.ResourcesOf("basic")
	for agent := range 8 {
		s := m.sandbox(fmt.Sprint("did:plc:a", agent), size)
		for day := range 30 {
			morning := month.AddDate(0, 0, day).Add(9 * time.Hour)
			m.awake(s, morning, morning.Add(4*time.Hour), 6*time.Minute)
		}
		m.gone(s, month.AddDate(0, 0, 31))
	}
	for _, rolled := range []bool{false, true} {
		if rolled {
			m.rollUp()
		}
		for _, group := range []sandbox.CostGroup{sandbox.CostByLease, sandbox.CostByAgent} {
			m.wantEightTimes(sandbox.CostQuery{From: month, To: month.AddDate(0, 1, 0), GroupBy: group})
		}
	}
}

func (m *month) wantEightTimes(q sandbox.CostQuery) {
	m.Helper()
	report := m.costs(q)
	if len(report.Rows) != 8 {
		m.Fatalf("there are %d rows", len(report.Rows))
	}
	for _, row := range report.Rows {
		const each = 1_416_960_000 // $11.33568 / 8
		if row.Gross != each || row.Total != each || row.Shadow != each || row.AwakeSeconds != 120*3600 ||
			row.AsleepSeconds != 30*86400-120*3600-9*3600 {
			m.Errorf("by %s: %+v, want $%s", q.GroupBy, row, sandbox.NanoUSD(each))
		}
	}
	want := sandbox.Amounts{
		Gross:    11_335_680_000,
		Included: 725_400_000, // 25 x $0.009 + 375 x $0.0012 + 200 x $0.000252
		PlanFee:  5 * sandbox.USD,
		Net:      15_610_280_000,
	}
	if len(report.Accounts) != 1 || report.Accounts[0].Amounts != want || want.Net.Cents() != "15.61" {
		m.Fatalf("the accounts are %+v, want one that owes %+v", report.Accounts, want)
	}
	for i, used := range []float64{960, 1440, 3840} {
		if l := report.Accounts[0].Lines[i]; l.Used != used {
			m.Errorf("of %s, %v %s were used, want %v", l.Resource, l.Used, l.Unit, used)
		}
	}
}

// TestACostNeverFallsWhileOthersRun: the cost of a lease stays, while its account's plan covers less and less of it.
func TestACostNeverFallsWhileOthersRun(t *testing.T) {
	t.Parallel()
	begin := time.Date(2026, 4, 1, 0, 0, 0, 0, time.UTC)
	m := newMonth(t, begin.AddDate(0, 0, 40))
	size := sandbox.Resources{MemoryMB: 1024}
	hourOf := func(agent string, hour int) {
		s := m.sandbox(agent, size)
		m.awake(s, begin.Add(time.Duration(hour)*time.Hour), begin.Add(time.Duration(hour+1)*time.Hour), 0)
		m.gone(s, begin.Add(time.Duration(hour+1)*time.Hour))
	}
	hourOf("did:plc:first", 0)
	first := m.costs(sandbox.CostQuery{AgentDID: "did:plc:first"})
	if first.Total.Total != 9_000_000 || first.Total.Total != first.Rows[0].Total || len(first.Accounts) != 1 {
		t.Fatalf("an hour is %+v", first)
	}
	for other := range 30 {
		hourOf(fmt.Sprint("did:plc:other", other), other+1)
		if got := m.costs(sandbox.CostQuery{AgentDID: "did:plc:first"}); got.Total != first.Total {
			t.Fatalf("beside %d others it is %+v, and was %+v", other+1, got.Total, first.Total)
		}
	}
	if owed := m.costs(sandbox.CostQuery{}).Accounts[0]; owed.Gross != 31*9_000_000 || owed.Included != 25*9_000_000 ||
		owed.PlanFee != 5*sandbox.USD {
		t.Errorf("the account owes %+v", owed)
	}
}

// TestAnAccountOwesThePlanOfItsLatestPriceBook changes prices in the middle of a month.
func TestAnAccountOwesThePlanOfItsLatestPriceBook(t *testing.T) {
	t.Parallel()
	begin := time.Date(2026, 4, 1, 0, 0, 0, 0, time.UTC)
	m := newMonth(t, begin.AddDate(0, 0, 40))
	s := m.sandbox("did:plc:ann", sandbox.Resources{MemoryMB: 1024})
	m.book = sandbox.PriceBook{Name: "old", PlanMonth: 3 * sandbox.USD, MemoryGiBSecond: 1}
	m.awake(s, begin, begin.Add(time.Hour), 0)
	m.book = sandbox.PriceBook{Name: "new", PlanMonth: 4 * sandbox.USD, MemoryGiBSecond: 2}
	m.awake(s, begin.AddDate(0, 0, 10), begin.AddDate(0, 0, 11), 0)
	m.gone(s, begin.AddDate(0, 0, 12))
	for _, rolled := range []bool{false, true} {
		if rolled {
			m.rollUp()
		}
		for to, want := range map[time.Time]string{
			begin.AddDate(0, 0, 10):                  "old",
			begin.Add(10*24*time.Hour + time.Minute): "new",
			begin.AddDate(0, 0, 31):                  "new",
		} {
			got := m.costs(sandbox.CostQuery{To: to}).Accounts
			if len(got) == 0 || got[0].PriceBook != want {
				m.Errorf("until %s, counted by day %t: %+v, want the plan of %s", to, rolled, got, want)
			}
		}
	}
}

// month is a ledger with usage that a test writes.
type month struct {
	*testing.T
	store  *ledger.Store
	engine *leasing.Service
	book   sandbox.PriceBook
}

func newMonth(t *testing.T, now time.Time) *month {
	t.Helper()
	m := &month{T: t, book: pricing.Cloudflare()}
	var err error
	if m.store, err = ledger.Open(t.Context(), "sqlite://"+filepath.Join(t.TempDir(), "ledger.db"),
		ledger.Options{Now: func() time.Time { return now }}); err != nil {
		t.Fatal(err)
	}
	if m.engine, err = leasing.New(leasing.Config{
		Store:     m.store,
		Executors: []driver.Executor{fake.New("engine", nil)},
	}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := errors.Join(m.engine.Close(), m.store.Close()); err != nil {
			t.Error(err)
		}
	})
	m.write(func(tx *ledger.Tx) error { return ledgertest.Environment(tx, "e1") })
	return m
}

func (m *month) write(fn func(tx *ledger.Tx) error) {
	m.Helper()
	if err := m.store.Write(m.Context(), fn); err != nil {
		m.Fatal(err)
	}
}

func (m *month) sandbox(agent string, size sandbox.Resources) *ledger.Sandbox {
	m.Helper()
	var s *ledger.Sandbox
	m.write(func(tx *ledger.Tx) error {
		s = ledgertest.Sandbox(tx, "e1", 1)
		lease := sandbox.LeaseID(agent, "e1")
		s.AgentDID, s.LeaseID = agent, &lease
		s.MemoryMB, s.CPUMillis, s.DiskMB = size.MemoryMB, size.CPUMillis, size.DiskMB
		return tx.CreateSandbox(s)
	})
	return s
}

// awake keeps a sandbox awake for a time, in which it uses the CPU, and then puts it to sleep.
func (m *month) awake(s *ledger.Sandbox, from, to time.Time, cpu time.Duration) {
	m.Helper()
	m.write(func(tx *ledger.Tx) error {
		book, err := accounting.In(tx).KeepPriceBook(sandbox.Docker, m.book)
		return errors.Join(err,
			accounting.In(tx).EnterState(s, sandbox.PhaseAwake, micro.At(from), book),
			accounting.In(tx).AddCPU(s, s.Meter.CPUMark+micro.SpanOf(cpu), micro.At(to)),
			accounting.In(tx).EnterState(s, sandbox.PhaseAsleep, micro.At(to), book))
	})
}

func (m *month) gone(s *ledger.Sandbox, at time.Time) {
	m.Helper()
	m.write(func(tx *ledger.Tx) error {
		return accounting.In(tx).EnterState(s, sandbox.PhaseGone, micro.At(at), nil)
	})
}

func (m *month) rollUp() {
	m.Helper()
	if err := m.engine.RollUp(m.Context()); err != nil {
		m.Fatal(err)
	}
}

func (m *month) costs(q sandbox.CostQuery) sandbox.CostReport {
	m.Helper()
	report, err := m.engine.Costs(m.Context(), q)
	if err != nil {
		m.Fatal(err)
	}
	return report
}
