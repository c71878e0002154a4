package pricing_test

import (
	"testing"
	"time"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/pricing"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// The eight agents of the worked example, at one command a minute, and a hundred agents that never sleep.
func TestRequestsAndDurableObjectsAreALineOfTheirOwn(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		usage pricing.Usage
		want  pricing.PlatformEstimate
	}{
		"eight agents, four hours a day": {
			pricing.Usage{Leases: 8, HoursPerDay: 4 * time.Hour, CommandsPerHour: pricing.DefaultCommandsPerHour},
			// 960 h x 180 = 172,800 requests, which the plan includes; (3,456,000 s x 0.128 GB - 400,000) x $0.0000125
			pricing.PlatformEstimate{Objects: 529_600_000, Total: 529_600_000},
		},
		"a hundred agents, day and night": {
			pricing.Usage{Leases: 100, HoursPerDay: 24 * time.Hour, CommandsPerHour: pricing.DefaultCommandsPerHour},
			// 72,000 h x 180 = 12,960,000 requests, and 72,000 h x 12 = 864,000 alarms: 2,960,000 x $0.0000003 + 12,824,000 x
			// $0.00000015; (259,200,000 s x 0.128 GB - 400,000) x $0.0000125; 72,000 h x 528 rows, which the plan includes
			pricing.PlatformEstimate{Requests: 2_811_600_000, Objects: 409_720_000_000, Total: 412_531_600_000},
		},
		"a thousand agents, day and night": {
			pricing.Usage{Leases: 1000, HoursPerDay: 24 * time.Hour, CommandsPerHour: pricing.DefaultCommandsPerHour},
			// 720,000 h x (60 x 6 + 120 x 1 + 12 x 4) = 380,160,000 rows of objects, 330,160,000 x $0.000001; 43,200,000 of D1
			pricing.PlatformEstimate{
				Requests: 56_466_000_000,
				Objects:  4_142_200_000_000,
				Rows:     330_160_000_000,
				Total:    4_528_826_000_000,
			},
		},
		"no agent": {pricing.Usage{HoursPerDay: 24 * time.Hour, CommandsPerHour: 1000}, pricing.PlatformEstimate{}},
		"one that always sleeps": {
			pricing.Usage{Leases: 1, CommandsPerHour: 1000}, pricing.PlatformEstimate{},
		},
	} {
		if got := pricing.EstimatePlatformMonth(pricing.CloudflarePlatform(), c.usage); got != c.want {
			t.Errorf("%s: got %+v, want %+v", name, got, c.want)
		}
	}
}

func TestEgressIsPricedByRegion(t *testing.T) {
	t.Parallel()
	want := map[string]sandbox.NanoUSD{ // of 2,000 GB
		"North America and Europe": 25_000_000_000, "Oceania, Korea and Taiwan": 75_000_000_000,
		"everywhere else": 60_000_000_000,
	}
	for _, e := range pricing.CloudflarePlatform().Egress {
		if got := e.Cost(2000); got != want[e.Region] {
			t.Errorf("2,000 GB from %s cost %s, want %s", e.Region, got, want[e.Region])
		}
		if got := e.Cost(e.IncludedGB); got != 0 {
			t.Errorf("what the plan includes of %s costs %s", e.Region, got)
		}
		delete(want, e.Region)
	}
	if len(want) > 0 {
		t.Errorf("there are no prices of %v", want)
	}
}
