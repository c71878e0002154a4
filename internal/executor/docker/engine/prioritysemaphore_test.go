package engine

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
)

// queue makes requests wait for the only slot, in order, and returns the order in which they get it.
func queue(t *testing.T, late []bool) []int {
	t.Helper()
	s := &prioritySemaphore{free: 1}
	if err := s.acquire(t.Context(), false); err != nil {
		t.Fatal(err)
	}
	var mu sync.Mutex
	var order []int
	var wg sync.WaitGroup
	for i := range late {
		wg.Go(func() {
			if err := s.acquire(t.Context(), late[i]); err != nil {
				t.Error(err)
			}
			mu.Lock()
			order = append(order, i)
			mu.Unlock()
			s.release()
		})
		synctest.Wait()
	}
	s.release()
	wg.Wait()
	return order
}

func TestRequestsWithoutAWaitingCallerComeLast(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		if got, want := queue(t, []bool{true, false, true, false}), []int{1, 3, 0, 2}; !slices.Equal(got, want) {
			t.Errorf("the order is %v, want %v", got, want)
		}
	})
}

func TestRequestsWithoutAWaitingCallerDoNotStarve(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		late := make([]bool, 3*lateShare)
		late[0], late[1] = true, true
		got := queue(t, late)
		if i, j := slices.Index(got, 0), slices.Index(got, 1); i != lateShare-1 || j != 2*lateShare-1 {
			t.Errorf("they came at %d and %d, want every %dth slot", i, j, lateShare)
		}
	})
}

func TestARequestThatGivesUpTakesNoSlot(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &prioritySemaphore{free: 1}
		if err := s.acquire(t.Context(), false); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		gaveUp := make(chan error, 1)
		go func() { gaveUp <- s.acquire(ctx, false) }()
		synctest.Wait()
		cancel()
		if err := <-gaveUp; !errors.Is(err, context.Canceled) {
			t.Errorf("it ended with %v", err)
		}
		s.release()
		if err := s.acquire(t.Context(), true); err != nil || s.free != 0 {
			t.Errorf("the next one: %v, with %d free", err, s.free)
		}
	})
}
