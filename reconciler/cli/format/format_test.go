package format_test

import (
	"testing"

	"github.com/sandbox-lease/terraform-provider-sandbox/reconciler/cli/format"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

func TestMoneyIsShownToTheCentOrFiner(t *testing.T) {
	t.Parallel()
	for amount, want := range map[sandbox.NanoUSD]string{
		0:                 "$0.00",
		15_609_999_999:    "$15.61",
		sandbox.USD / 100: "$0.01",
		9_999_999:         "$0.01",
		4_567_890:         "$0.0046",
		123_456:           "$0.00012",
		12:                "$0.000000012",
		1:                 "$0.000000001",
	} {
		if got := format.Dollars(amount); got != want {
			t.Errorf("%d is shown as %s, want %s", int64(amount), got, want)
		}
	}
}

func TestLengthsAreShownInTwoUnits(t *testing.T) {
	t.Parallel()
	for seconds, want := range map[float64]string{
		0: "0s", 0.0042: "4ms", 59.6: "1m", 61: "1m1s", 3600: "1h", 5400: "1h30m", 90061: "1d1h", 864000: "10d",
	} {
		if got := format.Length(seconds); got != want {
			t.Errorf("%v s is shown as %s, want %s", seconds, got, want)
		}
	}
}
