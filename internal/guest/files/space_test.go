//go:build linux

package files

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"
)

func TestASpaceIsWhatTheLastMeasurementLeft(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := NewSpace()
		take := func(bytes int64) error { return s.take(t.Context(), bytes) }
		later := func(after time.Duration, left int64) { time.AfterFunc(after, func() { s.Measured(left) }) }
		if err := take(1 << 40); err != nil {
			t.Errorf("before the first measurement: %v", err)
		}
		s.Measured(100)
		s.Measured(100) // now all that was taken is on the disk
		if err := take(100); err != nil {
			t.Errorf("what is left: %v", err)
		}
		// This measurement may have begun before the 100 bytes were written, and the next one has not.
		later(time.Second, 100)
		later(2*time.Second, 0)
		if err := take(1); !errors.Is(err, errRefused) {
			t.Errorf("what may be left no more: %v", err)
		}
		later(time.Second, 50) // files were removed
		if err := take(50); err != nil {
			t.Errorf("what is left again: %v", err)
		}
		began := time.Now()
		if err := take(1); !errors.Is(err, errRefused) || time.Since(began) != measureLimit {
			t.Errorf("without a measurement, after %s: %v", time.Since(began), err)
		}
	})
}
