package billing

import (
	"cmp"
	"context"
	"errors"
	"iter"
	"math/bits"
	"slices"
	"strings"
	"time"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/ledger"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/ledger/accounting"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/ledger/micro"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/pricing"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// The cost of a usage period is the sum of the costs of its UTC days, each rounded separately. So all
// groupings agree to the nano-dollar, and a day that has passed is counted once.

// part is a part of a usage period.
type part struct {
	from, to micro.Time
	cpu      micro.Span
}

// whole returns a whole period; an open one ends now.
func whole(p *accounting.UsagePeriod, now micro.Time) part {
	end := p.EndedAt
	if end == 0 {
		end = max(now, p.StartedAt)
	}
	return part{from: p.StartedAt, to: end, cpu: p.CPU}
}

// split cuts a part at a time. CPU time is divided by length, without loss. That of a part of length zero is before the
// cut.
func (x part) split(at micro.Time) (before, after part) {
	at = min(max(at, x.from), x.to)
	before, after = part{from: x.from, to: at}, part{from: at, to: x.to}
	switch {
	case x.from == x.to:
		before.cpu = x.cpu
	case at > x.from:
		hi, lo := bits.Mul64(uint64(x.cpu), uint64(at-x.from))
		share, _ := bits.Div64(hi, lo, uint64(x.to-x.from))
		before.cpu = micro.Span(share)
	}
	after.cpu = x.cpu - before.cpu
	return before, after
}

// days yields the parts of a period by UTC day; a period of length zero has one part. All CPU time was read on the
// first day: a later reading would have begun another period.
func days(p *accounting.UsagePeriod, now micro.Time) iter.Seq[part] {
	return func(yield func(part) bool) {
		rest := whole(p, now)
		for cpu := rest.cpu; ; cpu = 0 {
			var day part
			day, rest = rest.split(rest.from.Midnight().Add(micro.Day))
			day.cpu = cpu
			if !yield(day) || rest.from == rest.to {
				return
			}
		}
	}
}

// dayOf returns the name of the UTC day that contains t.
func dayOf(t micro.Time) string { return t.Time().Format(time.DateOnly) }

// partsIn yields the parts of a period by UTC day within a stretch, up to now, and whether the part is the
// first of the period. The stretch must start at midnight.
func partsIn(p *accounting.UsagePeriod, in stretch, now micro.Time) iter.Seq2[part, bool] {
	return func(yield func(part, bool) bool) {
		begins := true
		for day := range days(p, now) {
			x, _ := day.split(in.to)
			isIn := day.from >= in.from && day.from < in.to
			if isIn && (x.from < x.to || begins) && !yield(x, begins) {
				return
			}
			begins = false
		}
	}
}

// usage returns the usage of a part within one day.
func (x part) usage(p *accounting.UsagePeriod, book sandbox.PriceBook) accounting.Usage {
	awake, asleep := x.lengths(p)
	u := accounting.Usage{Awake: awake, Asleep: asleep, CPU: x.cpu}
	u.Memory, u.Disk = p.MemoryMB*int64(awake)/1000, p.DiskMB*int64(awake)/1000
	u.Cost = x.charge(p, book)
	u.Shadow = x.charge(p, pricing.Cloudflare())
	return u
}

// cost returns the gross cost of a part within one day.
func (x part) cost(p *accounting.UsagePeriod, book sandbox.PriceBook) sandbox.NanoUSD {
	return x.charge(p, book).Total()
}

func (x part) charge(p *accounting.UsagePeriod, book sandbox.PriceBook) sandbox.Charges {
	awake, asleep := x.lengths(p)
	return pricing.Charge(book, p.Resources(), awake.Duration().D(), asleep.Duration().D(), x.cpu.Duration().D())
}

// lengths returns how long a part was awake and asleep. One of them is 0.
func (x part) lengths(p *accounting.UsagePeriod) (awake, asleep micro.Span) {
	if p.State == sandbox.PhaseAwake {
		return micro.Span(x.to - x.from), 0
	}
	return 0, micro.Span(x.to - x.from)
}

// Use is the use of sandboxes, by their ids.
type Use struct {
	// Costs are the gross costs so far: the stored sum of ended periods, plus usage that is not in the sum yet.
	Costs map[string]sandbox.NanoUSD
	// AwakeSince has the times at which awake sandboxes were started or woken.
	AwakeSince map[string]micro.Time
}

// UseOf returns the use of sandboxes.
func UseOf(tx *ledger.Tx, sandboxIDs []string) (Use, error) {
	costs, err := accounting.In(tx).SandboxCosts(sandboxIDs)
	if err != nil {
		return Use{}, err
	}
	periods, err := accounting.In(tx).UnsettledPeriods(sandboxIDs)
	if err != nil {
		return Use{}, err
	}
	u := Use{Costs: costs, AwakeSince: make(map[string]micro.Time)}
	for i := range periods {
		if p := &periods[i]; p.State == sandbox.PhaseAwake && p.EndedAt == 0 {
			u.AwakeSince[p.SandboxID] = p.BegunAt()
		}
	}
	return u, addCosts(tx, costs, periods)
}

// addCosts adds the cost of usage periods to the sums of their sandboxes.
func addCosts(tx *ledger.Tx, costs map[string]sandbox.NanoUSD, periods []accounting.UsagePeriod) error {
	if len(periods) == 0 {
		return nil
	}
	books, err := accounting.In(tx).PriceBooks()
	for i := range periods {
		p := &periods[i]
		for day := range days(p, tx.Now) {
			costs[p.SandboxID] += day.cost(p, books[p.PriceBookID])
		}
	}
	return err
}

// rollUpBatch limits one write, so that other writes do not wait long.
const rollUpBatch = 2000

// RollUp adds usage that ended since the last call to the sums of days, months and sandboxes. Any number of
// processes may call it at any time: each period is counted once.
func (b *Service) RollUp(ctx context.Context) error {
	for _, step := range []func(*ledger.Tx) (int, error){rollUp, settleEarlier} {
		for {
			taken := 0
			err := b.store.Write(ctx, func(tx *ledger.Tx) (err error) {
				taken, err = step(tx)
				return err
			})
			if err != nil {
				return err
			}
			if taken < rollUpBatch {
				break
			}
		}
	}
	return nil
}

// rollUp counts a batch of usage periods and returns their number.
func rollUp(tx *ledger.Tx) (int, error) {
	periods, err := accounting.In(tx).TakeUnrolled(rollUpBatch)
	if err != nil || len(periods) == 0 {
		return 0, err
	}
	books, err := accounting.In(tx).PriceBooks()
	if err != nil {
		return 0, err
	}
	byDay, bySandbox := sumUp(periods, books)
	return len(periods), errors.Join(accounting.In(tx).AddCostDays(byDay, accountDays(periods)),
		accounting.In(tx).AddSandboxCosts(bySandbox))
}

// settleEarlier adds a batch of periods to the sums of sandboxes, which an earlier version counted only by
// day.
func settleEarlier(tx *ledger.Tx) (int, error) {
	periods, err := accounting.In(tx).TakeUnsettled(rollUpBatch)
	if err != nil {
		return 0, err
	}
	costs := make(map[string]sandbox.NanoUSD)
	return len(periods), errors.Join(addCosts(tx, costs, periods), accounting.In(tx).AddSandboxCosts(costs))
}

// sumUp sums ended periods by day, lease and account, and their gross cost by sandbox.
func sumUp(periods []accounting.UsagePeriod,
	books map[string]sandbox.PriceBook) ([]accounting.CostDay, map[string]sandbox.NanoUSD) {
	sums, costs := make(map[[4]string]*accounting.CostDay), make(map[string]sandbox.NanoUSD)
	for i := range periods {
		p := &periods[i]
		generations := p.Generations
		for x := range days(p, p.EndedAt) {
			key := [4]string{dayOf(x.from), p.EnvironmentID, p.LeaseID, p.Instance}
			sum := sums[key]
			if sum == nil {
				sum = &accounting.CostDay{
					Month:         monthName(key[0]),
					Day:           key[0],
					EnvironmentID: p.EnvironmentID,
					LeaseID:       p.LeaseID,
					Instance:      p.Instance,
					AgentDID:      p.AgentDID,
					Backend:       p.Backend,
				}
				sums[key] = sum
			}
			u := x.usage(p, books[p.PriceBookID])
			u.Generations, generations = generations, 0
			sum.Usage = sum.Plus(u)
			costs[p.SandboxID] += u.Cost.Total()
		}
	}
	byDay := slices.SortedFunc(values(sums), func(a, b accounting.CostDay) int {
		return cmp.Or(strings.Compare(a.Month, b.Month), strings.Compare(a.EnvironmentID, b.EnvironmentID),
			strings.Compare(a.LeaseID, b.LeaseID), strings.Compare(a.Instance, b.Instance), strings.Compare(a.Day, b.Day))
	})
	return byDay, costs
}

// accountDays returns, for each day, the price book of the most recently begun usage.
func accountDays(periods []accounting.UsagePeriod) []accounting.AccountDay {
	latest := make(map[[2]string]*accounting.AccountDay)
	for i := range periods {
		p := &periods[i]
		for x := range days(p, p.EndedAt) {
			d := accounting.AccountDay{
				Instance:    p.Instance,
				Day:         dayOf(x.from),
				Backend:     p.Backend,
				PriceBookID: p.PriceBookID,
				BegunAt:     p.BegunAt(),
			}
			key := [2]string{d.Instance, d.Day}
			if have := latest[key]; have == nil || d.Later(*have) {
				latest[key] = &d
			}
		}
	}
	return slices.Collect(values(latest))
}

// values yields the values that the pointers of a map point to.
func values[K comparable, V any](m map[K]*V) iter.Seq[V] {
	return func(yield func(V) bool) {
		for _, v := range m {
			if !yield(*v) {
				return
			}
		}
	}
}
