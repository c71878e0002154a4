package terminal

import (
	"bytes"
	"testing"
	"testing/synctest"
	"time"
)

func TestProgressIsReportedOfWhatTakesMoreThanASecond(t *testing.T) {
	t.Parallel()
	for took, want := range map[time.Duration]string{
		900 * time.Millisecond:  "",
		2500 * time.Millisecond: "\rcopying, 1s so far\rcopying, 2s so far\r\x1b[K",
	} {
		synctest.Test(t, func(t *testing.T) {
			var shown bytes.Buffer
			stop := progress(&shown, "copying")
			time.Sleep(took)
			stop()
			if shown.String() != want {
				t.Errorf("after %s it shows %q, want %q", took, shown.String(), want)
			}
		})
	}
}
