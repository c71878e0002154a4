package faults

import (
	"database/sql"
	"encoding/json"
	"fmt"
	"math"
	"math/big"
	"strings"
	"time"

	_ "github.com/jackc/pgx/v5/stdlib"
	_ "modernc.org/sqlite"

	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// The test computes the bill a second time, from the rows of usage_periods and without the program's own code. It
// implements the promises of package pricing again, with fractions.

// period is a row of usage_periods. Times and CPU are microseconds.
type period struct {
	sandbox, lease, state, book string
	memoryMB, diskMB            int64
	startedAt, endedAt, cpu     int64
}

// prices are the prices of a price book, in nano-dollars.
type prices struct{ memory, cpu, disk, asleepMemory, asleepDisk int64 }

const microsecondsPerDay = 24 * 3600 * 1_000_000

// checkBill computes the cost of every lease again, and compares it with each figure of the API.
func (w *world) checkBill() {
	w.t.Helper()
	periods, books := w.readPeriods()
	gross, awake, asleep := make(map[string]int64), make(map[string]int64), make(map[string]int64)
	lastEnd := make(map[string]int64)
	for _, p := range periods {
		switch end := lastEnd[p.sandbox]; {
		case p.endedAt == 0:
			w.t.Errorf("sandbox %s is destroyed and has an open usage period", p.sandbox)
			continue
		case end != 0 && p.startedAt != end:
			w.t.Errorf("sandbox %s: a usage period begins at %d, and the one before it ends at %d", p.sandbox, p.startedAt, end)
		}
		lastEnd[p.sandbox] = p.endedAt
		gross[p.lease] += p.cost(books[p.book])
		if p.state == "awake" {
			awake[p.lease] += p.endedAt - p.startedAt
		} else {
			asleep[p.lease] += p.endedAt - p.startedAt
		}
	}
	report, err := w.api().Costs(w.t.Context(), sandbox.CostQuery{GroupBy: sandbox.CostByLease})
	if err != nil {
		w.t.Fatal(err)
	}
	var total int64
	for _, row := range report.Rows {
		total += gross[row.LeaseID]
		if int64(row.Gross) != gross[row.LeaseID] {
			w.t.Errorf("%s costs %d nano-dollars by the API, and %d by its periods", row.LeaseID, row.Gross, gross[row.LeaseID])
		}
		if got := math.Round(row.AwakeSeconds * 1e6); got != float64(awake[row.LeaseID]) {
			w.t.Errorf("%s is awake for %v µs by the API, and for %d by its periods", row.LeaseID, got, awake[row.LeaseID])
		}
		if got := math.Round(row.AsleepSeconds * 1e6); got != float64(asleep[row.LeaseID]) {
			w.t.Errorf("%s is asleep for %v µs by the API, and for %d by its periods", row.LeaseID, got, asleep[row.LeaseID])
		}
	}
	if len(report.Rows) != len(gross) || int64(report.Total.Gross) != total {
		w.t.Errorf("%d rows of %d nano-dollars in all by the API, %d leases of %d by their periods",
			len(report.Rows), report.Total.Gross, len(gross), total)
	}
	w.t.Logf("%d usage periods of %d sandboxes and %d leases come to %d nano-dollars",
		len(periods), len(lastEnd), len(gross), total)
	if total == 0 || len(asleep) == 0 {
		w.t.Error("nothing was charged, or nothing ever slept: the test proves nothing")
	}
}

// cost returns the cost of a period. It rounds memory, CPU, disk and sleep of each UTC day separately, half up. It
// divides CPU time among days by their length, rounded down; the last day gets the rest.
func (p period) cost(b prices) (total int64) {
	for from, cpu := p.startedAt, p.cpu; ; {
		to := min((from/microsecondsPerDay+1)*microsecondsPerDay, p.endedAt)
		share := cpu
		if to < p.endedAt {
			share = new(big.Int).Div(new(big.Int).Mul(big.NewInt(cpu), big.NewInt(to-from)), big.NewInt(p.endedAt-from)).Int64()
		}
		length := to - from
		if p.state == "awake" {
			total += halfUp(fraction(1024*1_000_000, p.memoryMB, length, b.memory)) +
				halfUp(fraction(1000*1_000_000, p.diskMB, length, b.disk))
		} else {
			total += halfUp(new(big.Rat).Add(fraction(1024*1_000_000, p.memoryMB, length, b.asleepMemory),
				fraction(1000*1_000_000, p.diskMB, length, b.asleepDisk)))
		}
		total += halfUp(fraction(1_000_000, share, b.cpu))
		from, cpu = to, cpu-share
		if from >= p.endedAt {
			return total
		}
	}
}

// fraction returns the product of the factors divided by the divisor.
func fraction(divisor int64, factors ...int64) *big.Rat {
	product := big.NewRat(1, divisor)
	for _, f := range factors {
		product.Mul(product, big.NewRat(f, 1))
	}
	return product
}

// halfUp returns the nearest whole number, and rounds half up.
func halfUp(a *big.Rat) int64 {
	a = new(big.Rat).Add(a, big.NewRat(1, 2))
	return new(big.Int).Div(a.Num(), a.Denom()).Int64()
}

// readPeriods reads every usage period, ordered by sandbox and time, and the price books, directly from the database.
func (w *world) readPeriods() ([]period, map[string]prices) {
	w.t.Helper()
	driver, dsn := "pgx", w.reconcilers[0].LedgerURL
	if path, isFile := strings.CutPrefix(dsn, "sqlite://"); isFile {
		driver, dsn = "sqlite", "file:"+path+"?mode=ro"
	}
	db, err := sql.Open(driver, dsn)
	if err != nil {
		w.t.Fatal(err)
	}
	defer func() { _ = db.Close() }() // only read
	books := w.readBooks(db)
	rows, err := db.QueryContext(w.t.Context(),
		`SELECT sandbox_id, lease_id, state, memory_mb, disk_mb, started_at, ended_at, cpu, price_book_id
		FROM usage_periods ORDER BY sandbox_id, started_at, id`)
	if err != nil {
		w.t.Fatal(err)
	}
	defer func() { _ = rows.Close() }() // Err reports its error
	var periods []period
	for rows.Next() {
		var p period
		if err := rows.Scan(&p.sandbox, &p.lease, &p.state, &p.memoryMB, &p.diskMB, &p.startedAt, &p.endedAt, &p.cpu,
			&p.book); err != nil {
			w.t.Fatal(err)
		}
		periods = append(periods, p)
	}
	if err := rows.Err(); err != nil {
		w.t.Fatal(err)
	}
	return periods, books
}

// readBooks reads the price books, by id.
func (w *world) readBooks(db *sql.DB) map[string]prices {
	w.t.Helper()
	rows, err := db.QueryContext(w.t.Context(), "SELECT id, body FROM price_books")
	if err != nil {
		w.t.Fatal(err)
	}
	defer func() { _ = rows.Close() }() // Err reports its error
	books := make(map[string]prices)
	for rows.Next() {
		var (
			id, body string
			amounts  map[string]any
		)
		if err := rows.Scan(&id, &body); err != nil {
			w.t.Fatal(err)
		}
		if err := json.Unmarshal([]byte(body), &amounts); err != nil {
			w.t.Fatal(err)
		}
		books[id] = prices{
			memory:       w.nano(amounts, "memory_gib_second_usd"),
			cpu:          w.nano(amounts, "cpu_second_usd"),
			disk:         w.nano(amounts, "disk_gb_second_usd"),
			asleepMemory: w.nano(amounts, "asleep_memory_gib_second_usd"),
			asleepDisk:   w.nano(amounts, "asleep_disk_gb_second_usd"),
		}
	}
	if err := rows.Err(); err != nil {
		w.t.Fatal(err)
	}
	return books
}

// nano returns an amount of dollars in a price book as nano-dollars.
func (w *world) nano(amounts map[string]any, name string) int64 {
	w.t.Helper()
	text, given := amounts[name]
	if !given {
		return 0
	}
	dollars, ok := new(big.Rat).SetString(fmt.Sprint(text))
	if !ok {
		w.t.Fatalf("%s is %v, which is not an amount", name, text)
	}
	return halfUp(dollars.Mul(dollars, big.NewRat(int64(time.Second), 1)))
}
