package billing

import (
	"cmp"
	"maps"
	"slices"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/ledger/accounting"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/pricing"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// An account is one backend instance. The allotment and the fee of its plan are lines of the account, once per calendar
// month. They are not shared among leases: a share would change with the usage of others.

// accountKey identifies a month of an account.
type accountKey struct {
	month    string // 2006-01
	backend  sandbox.Backend
	instance string
}

// account is the usage of one account in one month.
type account struct {
	key  accountKey
	book accounting.AccountDay // the latest
	used accounting.Usage
}

type accounts map[accountKey]*account

// of returns an account's month and creates it if needed.
func (as accounts) of(b sandbox.Backend, instance, month string) *account {
	key := accountKey{month, b, instance}
	a := as[key]
	if a == nil {
		a = &account{key: key}
		as[key] = a
	}
	return a
}

// months returns the used accounts with their lines, sorted by month and name.
func (as accounts) months(books map[string]sandbox.PriceBook) (months []sandbox.AccountMonth) {
	sorted := slices.SortedFunc(maps.Values(as), func(x, y *account) int {
		return cmp.Or(cmp.Compare(x.key.month, y.key.month), cmp.Compare(x.key.backend, y.key.backend),
			cmp.Compare(x.key.instance, y.key.instance))
	})
	for _, a := range sorted {
		months = append(months, sandbox.AccountMonth{
			Backend: a.key.backend, Instance: a.key.instance, Month: a.key.month,
			Statement: statementOf(books[a.book.PriceBookID], a.used, a.used.Cost),
			Shadow:    statementOf(pricing.Cloudflare(), a.used, a.used.Shadow),
		})
	}
	return months
}

// noteBook keeps the book of the most recently begun usage: its plan applies to the month.
func (a *account) noteBook(b accounting.AccountDay) {
	if b.Later(a.book) {
		a.book = b
	}
}

// statementOf returns what an account owes for a month with one price book.
func statementOf(book sandbox.PriceBook, used accounting.Usage, gross sandbox.Charges) sandbox.Statement {
	volume := pricing.Volume{MemoryMiBMillis: used.Memory, CPUMicros: int64(used.CPU), DiskMBMillis: used.Disk}
	included, allotment := pricing.Settle(book, volume, gross), book.Included
	due := sandbox.Amounts{Gross: gross.Total(), Included: included.Total(), PlanFee: book.PlanMonth}
	due.Net = due.Gross - due.Included + due.PlanFee
	return sandbox.Statement{
		PriceBook: book.Name, Source: book.Source, AsOf: book.AsOf, Amounts: due,
		Lines: []sandbox.AccountLine{
			{
				Resource:  sandbox.ResourceMemory,
				Unit:      "GiB-hours",
				Used:      float64(used.Memory) / (1024 * 3600e3),
				Allotment: float64(allotment.MemoryGiBSeconds) / 3600,
				Gross:     gross.Memory,
				Included:  included.Memory,
			},
			{
				Resource:  sandbox.ResourceCPU,
				Unit:      "vCPU-minutes",
				Used:      used.CPU.Duration().D().Minutes(),
				Allotment: float64(allotment.CPUSeconds) / 60,
				Gross:     gross.CPU,
				Included:  included.CPU,
			},
			{
				Resource:  sandbox.ResourceDisk,
				Unit:      "GB-hours",
				Used:      float64(used.Disk) / (1000 * 3600e3),
				Allotment: float64(allotment.DiskGBSeconds) / 3600,
				Gross:     gross.Disk,
				Included:  included.Disk,
			},
			{Resource: sandbox.ResourceAsleep, Unit: "hours", Used: used.Asleep.Duration().D().Hours(), Gross: gross.Asleep},
		},
	}
}
