package expire

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/service"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// ledger has leases that have ended, and notes which are released.
type ledger struct {
	service.Leases
	leases   []sandbox.Lease
	released []string
}

func (s *ledger) ListLeases(_ context.Context, f sandbox.LeaseFilter) (page []sandbox.Lease, err error) {
	for _, l := range s.leases {
		if l.ID > f.After {
			page = append(page, l)
		}
	}
	return page, nil
}

func (s *ledger) Release(_ context.Context, r sandbox.LeaseRef) (l sandbox.Lease, err error) {
	s.released = append(s.released, r.ID)
	return l, nil
}

// A sandbox that is kept for an analysis stays, and no lease is touched if the condition ended nothing.
func TestOnlyWhatTheConditionEndedIsSettled(t *testing.T) {
	t.Parallel()
	for status, want := range map[sandbox.DeliveryStatus][]string{
		sandbox.DeliveryApplied: {"a"}, sandbox.DeliveryUnmatched: nil, sandbox.DeliveryStale: nil,
	} {
		s := &ledger{leases: []sandbox.Lease{{ID: "a"}, {ID: "b", KeptUntil: time.Unix(1, 0)}}}
		if err := settle(t.Context(), s, status, sandbox.ConditionData{EnvironmentID: "e"}); err != nil {
			t.Error(err)
		}
		if !slices.Equal(s.released, want) {
			t.Errorf("after a condition that is %s, %q are released, want %q", status, s.released, want)
		}
	}
}
