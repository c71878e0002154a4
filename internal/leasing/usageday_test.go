package leasing_test

import (
	"testing"
	"time"

	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// TestALoopKeepsUsageOfEveryMinuteForADay: at the loop's pace, one sample of each minute is kept, even with a second
// loop on the ledger. Samples older than a day are removed, even if destroyed sandboxes are kept forever.
func TestALoopKeepsUsageOfEveryMinuteForADay(t *testing.T) {
	inWorld(t, func(w *world) {
		w.environment(awakeFor(72 * time.Hour))
		w.startLoop()
		l := w.acquire(ann)
		later(5 * time.Minute)
		one := w.stop
		later(7 * time.Second)
		w.startLoop()
		later(5 * time.Minute)
		samples := w.samples()
		if len(samples) < 10 || len(samples) > 12 {
			t.Errorf("of ten minutes %d samples are kept", len(samples))
		}
		for i, s := range samples[1:] {
			apart := s.At.Sub(samples[i].At)
			if apart < 50*time.Second || apart > 70*time.Second || s.CPUMillis == nil {
				t.Errorf("sample %+v is %s younger than the one before", s, apart)
			}
		}
		another := w.stop
		another()
		one()

		w.startSlowLoop()
		later(30 * time.Hour)
		samples = w.samples()
		if len(samples) < 23 || len(samples) > 25 || w.now().Sub(samples[0].At) > sandbox.UsageKept+time.Hour {
			t.Errorf("of 30 hours, looked at every hour, %d samples are kept since %s", len(samples), samples[0].At)
		}
		w.want(w.lease(l.ID), sandbox.LeaseActive, "")
	})
}

// samples returns the kept usage samples of ann's sandbox.
func (w *world) samples() []sandbox.UsageSample {
	w.Helper()
	h, err := w.engine.LeaseUsageHistory(w.Context(), sandbox.UsageHistoryQuery{LeaseRef: sandbox.LeaseRef{ID: annLease}})
	if err != nil {
		w.Fatal(err)
	}
	return h.Samples
}
