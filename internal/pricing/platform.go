package pricing

import (
	"time"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/sandbox"
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
	// What the plan includes of each, once per account and month.
	IncludedRequests, IncludedObjectRequests, IncludedObjectGBSeconds int64
}

// CloudflarePlatform returns the list prices of Workers Paid. CPU time of Workers (30 million ms are included), rows that
// objects write and what R2 and D1 store are left out: a lease causes fractions of a cent of these.
func CloudflarePlatform() Platform {
	return Platform{
		Source:                  "https://developers.cloudflare.com/durable-objects/platform/pricing/",
		AsOf:                    "2026-08-21",
		Request:                 300,    // $0.30 a million
		ObjectRequest:           150,    // $0.15 a million
		ObjectGBSecond:          12_500, // $12.50 a million
		ObjectMB:                128,
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

// PlatformEstimate is what a month is expected to cost beside an Estimate.
type PlatformEstimate struct {
	Requests, Objects, Total sandbox.NanoUSD
}

// EstimatePlatformMonth returns the cost of the calls to sandboxes, as if nothing else used the account. Every command
// and every reading is one request of each kind; an object is in memory while its sandbox is awake, and asleep at no
// cost otherwise. It depends on nothing but its arguments.
func EstimatePlatformMonth(p Platform, u Usage) PlatformEstimate {
	if u.DaysPerMonth == 0 {
		u.DaysPerMonth = DaysPerMonth
	}
	awake := times(product(u.Leases, u.DaysPerMonth), seconds(u.HoursPerDay))
	requests := times(per(awake, int64(time.Hour/time.Second)), sum(product(u.CommandsPerHour), product(int64(readingsPerHour))))
	e := PlatformEstimate{
		Requests: round(sum(
			times(beyond(requests, p.IncludedRequests), price(p.Request)),
			times(beyond(requests, p.IncludedObjectRequests), price(p.ObjectRequest)))),
		Objects: round(times(beyond(times(awake, per(product(p.ObjectMB), 1000)), p.IncludedObjectGBSeconds), price(p.ObjectGBSecond))),
	}
	e.Total = round(sum(price(e.Requests), price(e.Objects)))
	return e
}
