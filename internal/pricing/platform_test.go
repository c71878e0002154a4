package pricing_test

import (
	"fmt"
	"os"
	"strings"
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
			// 960 h x 60 = 57,600 requests, which the plan includes; (3,456,000 s x 0.128 GB - 400,000) x $0.0000125
			pricing.PlatformEstimate{Objects: 529_600_000, Total: 529_600_000},
		},
		"a hundred agents, day and night": {
			pricing.Usage{Leases: 100, HoursPerDay: 24 * time.Hour, CommandsPerHour: pricing.DefaultCommandsPerHour},
			// 72,000 h x 60 = 4,320,000 requests, which the plan includes, and 72,000 h x 12 = 864,000 alarms: 4,184,000 x
			// $0.00000015; (259,200,000 s x 0.128 GB - 400,000) x $0.0000125; 72,000 h x 348 rows, which the plan includes
			pricing.PlatformEstimate{Requests: 627_600_000, Objects: 409_720_000_000, Total: 410_347_600_000},
		},
		"a thousand agents, day and night": {
			pricing.Usage{Leases: 1000, HoursPerDay: 24 * time.Hour, CommandsPerHour: pricing.DefaultCommandsPerHour},
			// 720,000 h x (60 x 5 + 12 x 4) = 250,560,000 rows of objects, 200,560,000 x $0.000001; 17,280,000 of D1
			pricing.PlatformEstimate{
				Requests: 17_586_000_000,
				Objects:  4_142_200_000_000,
				Rows:     200_560_000_000,
				Total:    4_360_346_000_000,
			},
		},
		"a thousand agents who do nothing, day and night": {
			pricing.Usage{Leases: 1000, HoursPerDay: 24 * time.Hour},
			// 8,640,000 alarms, 7,640,000 x $0.00000015; twice as many rows of objects and as many of D1, which the plan includes
			pricing.PlatformEstimate{Requests: 1_146_000_000, Objects: 4_142_200_000_000, Total: 4_143_346_000_000},
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

// TestTheGuideHasTheBillsOfAMonth compares the guide's table with the estimate. The lowest cost of Durable Objects
// assumes less time awake: 10 s of every 300 s, or 20 s of every command and 10 s of every alarm.
func TestTheGuideHasTheBillsOfAMonth(t *testing.T) {
	t.Parallel()
	guide, err := os.ReadFile("../../templates/guides/cloudflare.md")
	if err != nil {
		t.Fatal(err)
	}
	lite, _ := sandbox.ResourcesOf("lite")
	for name, c := range map[string]struct {
		usage    pricing.Usage
		inMemory time.Duration // a day
	}{
		"1,000 that are idle": {pricing.Usage{Leases: 1000, HoursPerDay: 24 * time.Hour}, 24 * time.Hour / 30},
		"10,000 with a command a minute": {
			pricing.Usage{Leases: 10_000, HoursPerDay: 24 * time.Hour, CommandsPerHour: 60}, 24 * time.Hour * 11 / 30,
		},
	} {
		most := pricing.EstimatePlatformMonth(pricing.CloudflarePlatform(), c.usage)
		containers := pricing.EstimateMonth(pricing.Cloudflare(), lite, c.usage)
		c.usage.HoursPerDay = c.inMemory
		least := pricing.EstimatePlatformMonth(pricing.CloudflarePlatform(), c.usage)
		row := fmt.Sprintf("| %s | $%s | $%s | $%s to $%s | $%s |", name, dollars(most.Requests), dollars(most.Rows),
			dollars(least.Objects), dollars(most.Objects), dollars(containers.Memory+containers.Disk))
		if !strings.Contains(string(guide), row) {
			t.Errorf("the guide lacks the row %s", row)
		}
	}
}

// dollars formats cents with commas.
func dollars(n sandbox.NanoUSD) string {
	whole, cents, _ := strings.Cut(n.Cents(), ".")
	if len(whole) > 3 {
		whole = whole[:len(whole)-3] + "," + whole[len(whole)-3:]
	}
	return whole + "." + cents
}

func TestEgressIsPricedByRegion(t *testing.T) {
	t.Parallel()
	want := map[string]sandbox.NanoUSD{ // for 2,000 GB
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
