package sandbox_test

import (
	"testing"
	"time"

	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

func TestAMonthIsProjectedAtTheRateSoFar(t *testing.T) {
	t.Parallel()
	const dollar = sandbox.NanoUSD(1e9)
	day := func(n int) time.Time { return time.Date(2026, 4, n, 0, 0, 0, 0, time.UTC) } // a month of 30 days
	for _, tt := range []struct {
		name       string
		since, now time.Time
		want       sandbox.NanoUSD
	}{
		{"an old environment, after a third", day(1).AddDate(-1, 0, 0), day(11), 30 * dollar},
		{"one made on the 6th, after five days", day(6), day(11), 50 * dollar},
		{"one made in this moment", day(11), day(11), 10 * dollar},
		{"one that a clock that went back makes young", day(12), day(11), 10 * dollar},
		{"in another time zone", day(1), day(11).In(time.FixedZone("", 5*3600)), 30 * dollar},
	} {
		if got := sandbox.ProjectMonth(10*dollar, tt.since, tt.now); got != tt.want {
			t.Errorf("%s: $%s, want $%s", tt.name, got, tt.want)
		}
	}
}
