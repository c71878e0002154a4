package channels

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// TestASilentSandboxIsGivenUpOnceTheEngineSaysTwiceThatItDoesNotRun gives the looks at a silent sandbox fixed answers.
func TestASilentSandboxIsGivenUpOnceTheEngineSaysTwiceThatItDoesNotRun(t *testing.T) {
	t.Parallel()
	stopped := sandbox.Errorf(sandbox.Conflict, "it is stopped")
	gone := sandbox.Errorf(sandbox.NotFound, "it is gone")
	answer := errors.New("it answered")
	for name, row := range map[string]struct {
		looks  []error // the sandbox answers after them
		want   error
		within time.Duration
	}{
		"stopped":                         {[]error{stopped, stopped}, stopped, time.Second},
		"stopped after it ran":            {[]error{nil, nil, nil, stopped, stopped}, stopped, 6 * time.Second},
		"gone":                            {[]error{nil, nil, gone}, gone, 3 * time.Second},
		"a late report":                   {[]error{nil, stopped, nil}, answer, 3 * time.Second},
		"late reports apart":              {[]error{stopped, nil, stopped, nil}, answer, 5 * time.Second},
		"it runs and answers in the end":  {[]error{nil, nil}, answer, 3 * time.Second},
		"it answers before the next look": {nil, answer, 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				answered := make(chan error, 1)
				looked, began := 0, time.Now()
				look := func() error {
					looked++
					if looked == len(row.looks) {
						answered <- answer
					}
					return row.looks[looked-1]
				}
				if len(row.looks) == 0 {
					answered <- answer
				}
				refused, err := awaitContact(answered, look)
				if !errors.Is(err, row.want) || refused != !errors.Is(row.want, answer) {
					t.Errorf("refused %t: %v; want %v", refused, err, row.want)
				}
				if took := time.Since(began); looked != len(row.looks) || took > row.within {
					t.Errorf("%d looks in %s, want %d within %s", looked, took, len(row.looks), row.within)
				}
			})
		})
	}
}
