package testwait_test

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/testwait"
)

func TestPollGivesUpAtItsLimit(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		began, tries := time.Now(), 0
		if testwait.Poll(time.Minute, func() bool { tries++; return false }) {
			t.Error("it reports what never came")
		}
		if took := time.Since(began); took < time.Minute || took > 61*time.Second || tries > 700 {
			t.Errorf("it took %s and %d tries", took, tries)
		}
	})
}

func TestPollSeesSoonWhatIsSoonDone(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		testwait.NoError(t, time.Minute, "10 ms are over", func() error {
			if took := time.Since(began); took < 10*time.Millisecond {
				return fmt.Errorf("%s are over", took)
			}
			return nil
		})
		testwait.Until(t, time.Minute, "it is asked once when that is enough", func() bool { return true })
		if took := time.Since(began); took > 20*time.Millisecond {
			t.Errorf("it took %s", took)
		}
	})
}
