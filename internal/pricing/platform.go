package pricing

import (
	"time"

	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// Platform holds the list prices of what Cloudflare bills for what stands before each sandbox: a request to the
// Worker and one to the sandbox's Durable Object for every call, and that object while it is in memory. No usage is
// recorded of it, so it is estimated and part of no report.
type Platform struct {
	// Source and AsOf are where the prices are from, and the day of reading.
	Source, AsOf string
	// Request and ObjectRequest are the prices of one request to a Worker and of one to a Durable Object.
	Request, ObjectRequest sandbox.NanoUSD
	// ObjectGBSecond is the price of memory, of which an object in memory has ObjectMB, whatever it uses.
	ObjectGBSecond sandbox.NanoUSD
	ObjectMB       int64
	// RowRead and RowWritten are the prices of one row, of Durable Objects and of D1 alike.
	RowRead, RowWritten sandbox.NanoUSD
	// What the plan includes of each, once per account and month. Rows of Durable Objects and of D1 are included apart.
	IncludedRequests, IncludedObjectRequests, IncludedObjectGBSeconds, IncludedRowsRead, IncludedRowsWritten int64
	// Egress is what containers send to the Internet, by where they run. No usage is recorded of it.
	Egress []Egress
}

// Egress is the price of what the containers of a region send.
type Egress struct {
	Region string
	PerGB  sandbox.NanoUSD
	// IncludedGB is what the plan includes, once per account and month.
	IncludedGB int64
}

// Cost returns what a month costs in which all containers of the region send so much.
func (e Egress) Cost(gb int64) sandbox.NanoUSD {
	return round(times(beyond(product(gb), e.IncludedGB), price(e.PerGB)))
}

// CloudflarePlatform returns the list prices of Workers Paid. CPU time of Workers (30 million ms are included) and what
// R2 and D1 store are left out: a lease causes fractions of a cent of these. Prices of egress are those of
// developers.cloudflare.com/containers/platform/pricing, read 2026-11.
func CloudflarePlatform() Platform {
	return Platform{
		Source:              "https://developers.cloudflare.com/durable-objects/platform/pricing/",
		AsOf:                "2026-08-21",
		Request:             300,    // $0.30 a million
		ObjectRequest:       150,    // $0.15 a million
		ObjectGBSecond:      12_500, // $12.50 a million
		ObjectMB:            128,
		RowRead:             1,     // $0.001 a million
		RowWritten:          1_000, // $1 a million
		IncludedRowsRead:    25_000_000_000,
		IncludedRowsWritten: 50_000_000,
		Egress: []Egress{
			{"North America and Europe", 25_000_000, 1000},
			{"Oceania, Korea and Taiwan", 50_000_000, 500},
			{"everywhere else", 40_000_000, 500},
		},
		IncludedRequests:        10_000_000,
		IncludedObjectRequests:  1_000_000,
		IncludedObjectGBSeconds: 400_000,
	}
}

// DefaultCommandsPerHour is how many commands an agent is taken to run in an hour in which its sandbox is awake, where
// nothing else is said: one a minute.
const DefaultCommandsPerHour = 60

// readingsPerHour is how often a reconciler asks a sandbox that is awake for what it has used: every 30 s.
const readingsPerHour = 120

// Rows that our Worker writes, counted on the local runtime in November 2026. The alarm of a sandbox that is awake comes
// every five minutes, and is a request to its Durable Object; it tells D1 of the commands since the last one.
const (
	rowsPerCommand = 6
	rowsPerReading = 1
	alarmsPerHour  = 12
	rowsPerAlarm   = 4
	d1RowsPerAlarm = 5
)

// PlatformEstimate is what a month is expected to cost beside an Estimate.
type PlatformEstimate struct {
	Requests, Objects, Rows, Total sandbox.NanoUSD
}

// EstimatePlatformMonth returns the cost of the calls to sandboxes, as if nothing else used the account. Every command
// and every reading is one request of each kind, and every alarm one to the object; an object is in memory while its
// sandbox is awake, and asleep at no cost otherwise. Rows that are read are left out: the plan includes 25 billion. It
// depends on nothing but its arguments.
func EstimatePlatformMonth(p Platform, u Usage) PlatformEstimate {
	if u.DaysPerMonth == 0 {
		u.DaysPerMonth = DaysPerMonth
	}
	awake := times(product(u.Leases, u.DaysPerMonth), seconds(u.HoursPerDay))
	hours := per(awake, int64(time.Hour/time.Second))
	requests := times(hours, sum(product(u.CommandsPerHour), product(int64(readingsPerHour))))
	alarms := times(hours, product(int64(alarmsPerHour)))
	rows := times(hours, sum(product(u.CommandsPerHour, rowsPerCommand), product(int64(readingsPerHour), rowsPerReading), product(int64(alarmsPerHour), rowsPerAlarm)))
	e := PlatformEstimate{
		Requests: round(sum(
			times(beyond(requests, p.IncludedRequests), price(p.Request)),
			times(beyond(sum(requests, alarms), p.IncludedObjectRequests), price(p.ObjectRequest)))),
		Objects: round(times(beyond(times(awake, per(product(p.ObjectMB), 1000)), p.IncludedObjectGBSeconds), price(p.ObjectGBSecond))),
	}
	e.Rows = round(sum(
		times(beyond(rows, p.IncludedRowsWritten), price(p.RowWritten)),
		times(beyond(times(alarms, product(int64(d1RowsPerAlarm))), p.IncludedRowsWritten), price(p.RowWritten))))
	e.Total = round(sum(price(e.Requests), price(e.Objects), price(e.Rows)))
	return e
}
