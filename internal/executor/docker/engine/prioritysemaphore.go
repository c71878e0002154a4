package engine

import (
	"context"
	"slices"
	"sync"
	"time"
)

// slotLimit is the longest time that a request holds a slot. A longer request waits for a resource of its object, such
// as a container's lock, and does not load the engine.
const slotLimit = 5 * time.Second

// stuckFor is how long an object counts as hanging after its last request.
const stuckFor = 10 * time.Minute

// slots limits concurrent requests. Requests about hanging objects have separate slots, so that any number of
// hanging sandboxes does not delay the others.
type slots struct {
	clear, blocked prioritySemaphore

	mu    sync.Mutex // guards what follows
	stuck map[string]time.Time
}

func newSlots(calls int) *slots {
	return &slots{
		clear:   prioritySemaphore{free: calls},
		blocked: prioritySemaphore{free: calls},
		stuck:   make(map[string]time.Time),
	}
}

// enter waits for a slot. leave returns the slot, and records whether the engine answered. Errors: from ctx.
func (s *slots) enter(ctx context.Context, object string, late bool) (leave func(answered bool), err error) {
	from := &s.clear
	if err := from.acquire(ctx, late); err != nil {
		return nil, err
	}
	if s.isStuck(object) { // it may have become stuck while the request waited
		from.release()
		from = &s.blocked
		if err := from.acquire(ctx, late); err != nil {
			return nil, err
		}
	}
	give := sync.OnceFunc(from.release)
	overdue := time.AfterFunc(slotLimit, func() {
		s.markStuck(object)
		give()
	})
	return func(answered bool) {
		overdue.Stop()
		give()
		if answered {
			s.mu.Lock()
			defer s.mu.Unlock()
			delete(s.stuck, object)
		}
	}, nil
}

func (s *slots) isStuck(object string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	_, stuck := s.stuck[object]
	return stuck
}

func (s *slots) markStuck(object string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Now()
	for o, at := range s.stuck {
		if now.Sub(at) > stuckFor {
			delete(s.stuck, o)
		}
	}
	s.stuck[object] = now
}

// prioritySemaphore limits concurrent requests. Late requests, for which no caller waits, come after all others. Every
// eighth slot is for them, so that they never starve.
type prioritySemaphore struct {
	mu    sync.Mutex // guards what follows
	free  int
	soon  []chan struct{} // waiters, longest wait first; closed when the waiter gets its slot
	late  []chan struct{}
	given int // slots given to soon in a row while late had waiters
}

// lateShare is the share of late requests: one in this many slots.
const lateShare = 8

// acquire waits for a slot. Errors: from ctx.
func (s *prioritySemaphore) acquire(ctx context.Context, late bool) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	s.mu.Lock()
	if s.free > 0 {
		s.free--
		s.mu.Unlock()
		return nil
	}
	queue := &s.soon
	if late {
		queue = &s.late
	}
	mine := make(chan struct{})
	*queue = append(*queue, mine)
	s.mu.Unlock()
	select {
	case <-mine:
		return nil
	case <-ctx.Done():
	}
	s.mu.Lock()
	i := slices.Index(*queue, mine)
	if i >= 0 {
		*queue = slices.Delete(*queue, i, i+1)
	}
	s.mu.Unlock()
	if i < 0 { // the waiter got its slot at the same moment
		s.release()
	}
	return ctx.Err()
}

// release passes a slot to the next waiter, or frees it.
func (s *prioritySemaphore) release() {
	s.mu.Lock()
	defer s.mu.Unlock()
	queue := &s.soon
	switch {
	case len(s.soon)+len(s.late) == 0:
		s.free++
		return
	case len(s.late) == 0:
	case len(s.soon) == 0 || s.given == lateShare-1:
		queue, s.given = &s.late, 0
	default:
		s.given++
	}
	close((*queue)[0])
	*queue = (*queue)[1:]
}
