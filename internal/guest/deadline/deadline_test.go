//go:build linux

package deadline

import (
	"testing"
	"time"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/guest/wire"
)

func TestWhatIsLeftOfASandboxFollowsNoClockThatIsSet(t *testing.T) {
	t.Parallel()
	written := time.Date(2026, 11, 22, 12, 0, 0, 0, time.UTC)
	ends := wire.Ends{
		At:        written.Add(10 * time.Minute),
		Boot:      "this",
		SinceBoot: time.Hour + 10*time.Minute,
		Left:      10 * time.Minute,
	}
	elsewhere := ends
	elsewhere.Boot, elsewhere.SinceBoot = "", 0
	for name, row := range map[string]struct {
		ends wire.Ends
		at   Clocks
		want time.Duration
	}{
		"at once": {ends, Clocks{written, "this", time.Hour}, 10 * time.Minute},
		"a restart after 4 minutes": {ends,
			Clocks{written.Add(4 * time.Minute), "this", time.Hour + 4*time.Minute}, 6 * time.Minute},
		"the clock was set 1 h ahead": {ends,
			Clocks{written.Add(64 * time.Minute), "this", time.Hour + 4*time.Minute}, 6 * time.Minute},
		"the clock was set 1 h back": {ends,
			Clocks{written.Add(-56 * time.Minute), "this", time.Hour + 4*time.Minute}, 6 * time.Minute},
		"past the deadline": {ends,
			Clocks{written.Add(-56 * time.Minute), "this", time.Hour + 11*time.Minute}, -time.Minute},
		"a reboot 4 minutes later": {ends,
			Clocks{written.Add(4 * time.Minute), "next", 5 * time.Second}, 6 * time.Minute},
		"a reboot to a clock that was reset": {ends, Clocks{time.Unix(0, 0), "next", 5 * time.Second}, 10 * time.Minute},
		"a reboot after the deadline": {ends,
			Clocks{written.Add(11 * time.Minute), "next", 5 * time.Second}, -time.Minute},
		"an engine elsewhere": {elsewhere,
			Clocks{written.Add(4 * time.Minute), "that", time.Second}, 6 * time.Minute},
		"an engine elsewhere, whose clock slips": {elsewhere,
			Clocks{written.Add(-time.Hour), "that", time.Second}, 10 * time.Minute},
		"a boot without a name": {elsewhere,
			Clocks{written.Add(4 * time.Minute), "", time.Second}, 6 * time.Minute},
	} {
		if got := row.at.Left(row.ends); got != row.want {
			t.Errorf("%s: %s are left, want %s", name, got, row.want)
		}
	}
}

func TestADeadlineWithoutClocksIsOfTheClockHere(t *testing.T) {
	t.Parallel()
	now, err := ReadClocks()
	if err != nil {
		t.Fatal(err)
	}
	ends, err := Parse("", now.now.Add(time.Hour))
	if err != nil {
		t.Fatal(err)
	}
	if got := now.Left(ends); got != time.Hour {
		t.Errorf("%s are left of an hour", got)
	}
}
