package billing

import (
	"cmp"
	"iter"
	"maps"
	"slices"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/ledger"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/pricing"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// An account is one backend instance. The allotment and the fee of its plan are lines of the account, once
// per calendar month. They are shared among everything that used the account: first among leases, then among
// a lease's days, then between the parts of a day that a query cuts. Each step divides exactly
// (pricing.Share), so all sums agree to the nano-dollar.

// accountKey identifies a month of an account.
type accountKey struct {
	month    string // 2006-01
	backend  sandbox.Backend
	instance string
}

// leaseKey identifies a sharer of an account. A warm pool has only an environment.
type leaseKey struct{ environment, agent, lease string }

// account is the usage of one account in one month.
type account struct {
	key    accountKey
	book   ledger.AccountDay // the latest
	leases map[leaseKey]*leaseUse
}

// leaseUse is one lease's usage of an account in a month.
type leaseUse struct {
	leaseKey
	days []dayUse
}

// dayUse is a lease's usage on one day or in the whole month.
type dayUse struct {
	day    string // "" is the month
	total  ledger.Usage
	inside ledger.Usage // the part within the query's time
	isIn   bool         // whether there is such a part
}

type accounts map[accountKey]*account

// of returns an account's month and creates it if needed.
func (as accounts) of(b sandbox.Backend, instance, month string) *account {
	key := accountKey{month, b, instance}
	a := as[key]
	if a == nil {
		a = &account{key: key, leases: make(map[leaseKey]*leaseUse)}
		as[key] = a
	}
	return a
}

// sorted returns the used accounts, sorted by month and name.
func (as accounts) sorted() []*account {
	return slices.SortedFunc(maps.Values(as), func(x, y *account) int {
		return cmp.Or(cmp.Compare(x.key.month, y.key.month), cmp.Compare(x.key.backend, y.key.backend),
			cmp.Compare(x.key.instance, y.key.instance))
	})
}

// noteBook keeps the book of the most recently begun usage: its plan applies to the month.
func (a *account) noteBook(b ledger.AccountDay) {
	if b.Later(a.book) {
		a.book = b
	}
}

// add adds usage; inside is the part within the query's time.
func (a *account) add(u *ledger.LeaseUsage, inside ledger.Usage, isIn bool) {
	key := leaseKey{u.EnvironmentID, u.AgentDID, u.LeaseID}
	l := a.leases[key]
	if l == nil {
		l = &leaseUse{leaseKey: key}
		a.leases[key] = l
	}
	d := l.on(u.Day)
	d.total = d.total.Plus(u.Usage)
	if isIn {
		d.inside, d.isIn = d.inside.Plus(inside), true
	}
}

// on returns a day of a lease and creates it if needed.
func (l *leaseUse) on(day string) *dayUse {
	for i := range l.days {
		if l.days[i].day == day {
			return &l.days[i]
		}
	}
	l.days = append(l.days, dayUse{day: day})
	return &l.days[len(l.days)-1]
}

// settledAccount is an account's month with its lines.
type settledAccount struct {
	key          accountKey
	leases       []*leaseUse // sorted by name
	cost, shadow statement
}

// settle computes an account's lines for its own plan and for Cloudflare's.
func (a *account) settle(books map[string]sandbox.PriceBook) *settledAccount {
	s := &settledAccount{key: a.key}
	s.leases = slices.SortedFunc(maps.Values(a.leases), func(x, y *leaseUse) int {
		return cmp.Or(cmp.Compare(x.environment, y.environment), cmp.Compare(x.agent, y.agent), cmp.Compare(x.lease, y.lease))
	})
	var used ledger.Usage
	for _, l := range s.leases {
		slices.SortFunc(l.days, func(x, y dayUse) int { return cmp.Compare(x.day, y.day) })
		for i := range l.days {
			used = used.Plus(l.days[i].total)
		}
	}
	s.cost = newStatement(books[a.book.PriceBookID], used, used.Cost)
	s.shadow = newStatement(pricing.Cloudflare(), used, used.Shadow)
	return s
}

// month converts the account's lines to the domain type.
func (s *settledAccount) month() sandbox.AccountMonth {
	return sandbox.AccountMonth{
		Backend: s.key.backend, Instance: s.key.instance, Month: s.key.month,
		Statement: s.cost.domain(), Shadow: s.shadow.domain(),
	}
}

// leaseDay is a lease's usage on a day within the query's time, with its shares.
type leaseDay struct {
	day          string
	usage        ledger.Usage
	cost, shadow sandbox.Amounts
}

// inside yields the usage within the query's time, with its share of the account's lines.
func (s *settledAccount) inside() iter.Seq2[*leaseUse, leaseDay] {
	cost := func(u ledger.Usage) sandbox.Charges { return u.Cost }
	shadow := func(u ledger.Usage) sandbox.Charges { return u.Shadow }
	return func(yield func(*leaseUse, leaseDay) bool) {
		costs, shadows := s.byLease(s.cost.lines, cost), s.byLease(s.shadow.lines, shadow)
		for i, l := range s.leases {
			costDays, shadowDays := l.byDay(costs[i], cost), l.byDay(shadows[i], shadow)
			for j := range l.days {
				d := &l.days[j]
				if d.isIn && !yield(l, leaseDay{d.day, d.inside, d.part(costDays[j], cost), d.part(shadowDays[j], shadow)}) {
					return
				}
			}
		}
	}
}

// charged selects the cost of usage: at its own prices, or at Cloudflare's.
type charged func(ledger.Usage) sandbox.Charges

func (s *settledAccount) byLease(x lines, of charged) []lines {
	gross := make([]sandbox.Charges, len(s.leases))
	for i, l := range s.leases {
		for j := range l.days {
			gross[i] = gross[i].Plus(of(l.days[j].total))
		}
	}
	return x.divide(gross)
}

func (l *leaseUse) byDay(x lines, of charged) []lines {
	gross := make([]sandbox.Charges, len(l.days))
	for i := range l.days {
		gross[i] = of(l.days[i].total)
	}
	return x.divide(gross)
}

// part returns the amounts of the usage within the query's time.
func (d *dayUse) part(x lines, of charged) sandbox.Amounts {
	inside := of(d.inside)
	if d.inside != d.total {
		x = x.divide([]sandbox.Charges{inside, of(d.total).Minus(inside)})[0]
	}
	return x.amounts(inside)
}

// lines are the amounts that an account's plan subtracts and adds.
type lines struct {
	included sandbox.Charges
	fee      sandbox.NanoUSD
}

// divide shares each resource's allotment by the cost of that resource's use, and the fee by the total cost.
func (x lines) divide(gross []sandbox.Charges) []lines {
	if len(gross) == 1 {
		return []lines{x}
	}
	shares := make([]lines, len(gross))
	weights := make([]sandbox.NanoUSD, len(gross))
	by := func(amount sandbox.NanoUSD, weight func(c *sandbox.Charges) sandbox.NanoUSD,
		to func(share *lines) *sandbox.NanoUSD) {
		if amount == 0 {
			return
		}
		for i := range gross {
			weights[i] = weight(&gross[i])
		}
		for i, n := range pricing.Share(amount, weights) {
			*to(&shares[i]) = n
		}
	}
	by(x.included.Memory, func(c *sandbox.Charges) sandbox.NanoUSD { return c.Memory },
		func(s *lines) *sandbox.NanoUSD { return &s.included.Memory })
	by(x.included.CPU, func(c *sandbox.Charges) sandbox.NanoUSD { return c.CPU },
		func(s *lines) *sandbox.NanoUSD { return &s.included.CPU })
	by(x.included.Disk, func(c *sandbox.Charges) sandbox.NanoUSD { return c.Disk },
		func(s *lines) *sandbox.NanoUSD { return &s.included.Disk })
	by(x.fee, (*sandbox.Charges).Total, func(s *lines) *sandbox.NanoUSD { return &s.fee })
	return shares
}

func (x lines) amounts(gross sandbox.Charges) sandbox.Amounts {
	a := sandbox.Amounts{Gross: gross.Total(), Included: x.included.Total(), PlanFee: x.fee}
	a.Net = a.Gross - a.Included + a.PlanFee
	return a
}

// statement is what an account owes for a month with one price book.
type statement struct {
	book  sandbox.PriceBook
	used  ledger.Usage
	gross sandbox.Charges
	lines lines
}

func newStatement(book sandbox.PriceBook, used ledger.Usage, gross sandbox.Charges) statement {
	volume := pricing.Volume{MemoryMiBMillis: used.Memory, CPUMicros: int64(used.CPU), DiskMBMillis: used.Disk}
	return statement{
		book:  book,
		used:  used,
		gross: gross,
		lines: lines{included: pricing.Settle(book, volume, gross), fee: book.PlanMonth},
	}
}

func (s *statement) domain() sandbox.Statement {
	included, allotment := s.lines.included, s.book.Included
	d := sandbox.Statement{
		PriceBook: s.book.Name, Source: s.book.Source, AsOf: s.book.AsOf, Amounts: s.lines.amounts(s.gross),
		Lines: []sandbox.AccountLine{
			{
				Resource:  sandbox.ResourceMemory,
				Unit:      "GiB-hours",
				Used:      float64(s.used.Memory) / (1024 * 3600e3),
				Allotment: float64(allotment.MemoryGiBSeconds) / 3600,
				Gross:     s.gross.Memory,
				Included:  included.Memory,
			},
			{
				Resource:  sandbox.ResourceCPU,
				Unit:      "vCPU-minutes",
				Used:      s.used.CPU.Duration().D().Minutes(),
				Allotment: float64(allotment.CPUSeconds) / 60,
				Gross:     s.gross.CPU,
				Included:  included.CPU,
			},
			{
				Resource:  sandbox.ResourceDisk,
				Unit:      "GB-hours",
				Used:      float64(s.used.Disk) / (1000 * 3600e3),
				Allotment: float64(allotment.DiskGBSeconds) / 3600,
				Gross:     s.gross.Disk,
				Included:  included.Disk,
			},
			{Resource: sandbox.ResourceAsleep, Unit: "hours", Used: s.used.Asleep.Duration().D().Hours(), Gross: s.gross.Asleep},
		},
	}
	return d
}
