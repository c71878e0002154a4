package pricing_test

import (
	"testing"
	"time"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/pricing"
)

// The eight agents of the worked example, at a command a minute, and a hundred that never sleep.
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
			// 72,000 h x 180 = 12,960,000 requests: 2,960,000 x $0.0000003 + 11,960,000 x $0.00000015;
			// (259,200,000 s x 0.128 GB - 400,000) x $0.0000125
			pricing.PlatformEstimate{Requests: 2_682_000_000, Objects: 409_720_000_000, Total: 412_402_000_000},
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
