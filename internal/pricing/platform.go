package pricing

import (
	"time"

	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// Platform holds the list prices of what Cloudflare bills around each sandbox: for each call a request to the
// Worker and one to the sandbox's Durable Object, and the memory of that object. The ledger does not record
// this usage. So it is only estimated, and no report contains it.
type Platform struct {
	// Source and AsOf are the source of the prices and the date of reading.
	Source, AsOf string
	// Request and ObjectRequest are the prices of one request to a Worker and to a Durable Object.
	Request, ObjectRequest sandbox.NanoUSD
	// ObjectGBSecond is the price of an object's memory. An active object always has ObjectMB.
	ObjectGBSecond sandbox.NanoUSD
	ObjectMB       int64
	// RowRead and RowWritten are the prices of one row, the same for Durable Objects and D1.
	RowRead, RowWritten sandbox.NanoUSD
	// Included quantities of the plan, once per account and month. Durable Objects and D1 have separate
	// quotas of rows.
	IncludedRequests, IncludedObjectRequests, IncludedObjectGBSeconds, IncludedRowsRead, IncludedRowsWritten int64
	// Egress is the price of traffic from containers to the Internet, by region. The ledger does not record
	// it.
	Egress []Egress
}

// Egress is the price of the traffic that the containers of a region send.
type Egress struct {
	Region string
	PerGB  sandbox.NanoUSD
	// IncludedGB is the quantity that the plan includes, once per account and month.
	IncludedGB int64
}

// Cost returns the cost of a month in which all containers of the region together send gb.
func (e Egress) Cost(gb int64) sandbox.NanoUSD {
	return round(times(beyond(product(gb), e.IncludedGB), price(e.PerGB)))
}

// CloudflarePlatform returns the list prices of Workers Paid. CPU time of Workers (30 million ms are
// included) and storage of R2 and D1 are omitted: a lease causes fractions of a cent. Egress prices are those
// of developers.cloudflare.com/containers/platform/pricing, read 2026-11.
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

// DefaultCommandsPerHour is the default number of commands per hour awake: one a minute.
const DefaultCommandsPerHour = 60

// Rows that our Worker writes, counted on the local runtime in November 2026. The alarm of an awake sandbox
// fires every five minutes and is a request to its Durable Object. It writes to D1 what the sandbox uses, and
// whether there were commands since the last alarm.
const (
	rowsPerCommand     = 5
	alarmsPerHour      = 12
	rowsPerAlarm       = 4
	d1RowsPerAlarm     = 2
	idleRowsPerAlarm   = 2 // without commands
	idleD1RowsPerAlarm = 1
)

// PlatformEstimate is the expected cost of a month in addition to an Estimate.
type PlatformEstimate struct {
	Requests, Objects, Rows, Total sandbox.NanoUSD
}

// EstimatePlatformMonth returns the cost of the calls to sandboxes if nothing else uses the account. Every
// command is one request of each kind, and every alarm one to the object. An object counts as in memory while
// its sandbox is awake, which is the most that it can be; otherwise it sleeps at no cost. Rows read are omitted:
// the plan includes 25 billion. It depends only on its arguments.
func EstimatePlatformMonth(p Platform, u Usage) PlatformEstimate {
	if u.DaysPerMonth == 0 {
		u.DaysPerMonth = DaysPerMonth
	}
	awake := times(product(u.Leases, u.DaysPerMonth), seconds(u.HoursPerDay))
	hours := per(awake, int64(time.Hour/time.Second))
	requests := times(hours, product(u.CommandsPerHour))
	alarms := times(hours, product(int64(alarmsPerHour)))
	perAlarm, d1PerAlarm := int64(rowsPerAlarm), int64(d1RowsPerAlarm)
	if u.CommandsPerHour == 0 {
		perAlarm, d1PerAlarm = idleRowsPerAlarm, idleD1RowsPerAlarm
	}
	rows := times(hours, sum(product(u.CommandsPerHour, rowsPerCommand), product(int64(alarmsPerHour), perAlarm)))
	e := PlatformEstimate{
		Requests: round(sum(
			times(beyond(requests, p.IncludedRequests), price(p.Request)),
			times(beyond(sum(requests, alarms), p.IncludedObjectRequests), price(p.ObjectRequest)))),
		Objects: round(times(beyond(times(awake, per(product(p.ObjectMB), 1000)), p.IncludedObjectGBSeconds),
			price(p.ObjectGBSecond))),
	}
	e.Rows = round(sum(
		times(beyond(rows, p.IncludedRowsWritten), price(p.RowWritten)),
		times(beyond(times(alarms, product(d1PerAlarm)), p.IncludedRowsWritten), price(p.RowWritten))))
	e.Total = round(sum(price(e.Requests), price(e.Objects), price(e.Rows)))
	return e
}
