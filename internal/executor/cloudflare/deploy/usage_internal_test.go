package deploy

import (
	"testing"
	"time"
)

// Cloudflare cuts an answer off at maxGroups without an error.
func TestNoQueryOfUsageIsCutOff(t *testing.T) {
	t.Parallel()
	from := time.Date(2026, 11, 1, 0, 0, 0, 0, time.UTC)
	for days, want := range map[int]int{1: 1000, 7: 1000, 9: 1000, 10: 909, 31: 312, 20_000: 1} {
		if got := perQuery(from, from.AddDate(0, 0, days)); got != want || got > 1 && got*days > maxGroups {
			t.Errorf("a query for %d days asks for %d applications, want %d", days, got, want)
		}
	}
}
