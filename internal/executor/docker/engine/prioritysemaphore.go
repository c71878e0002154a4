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

// lanes assigns slots to requests. Requests about hanging objects have separate slots, so that any number of
// hanging sandboxes does not delay the others.
type lanes struct {
	clear, blocked prioritySemaphore

	mu    sync.Mutex // guards what follows
	stuck map[string]time.Time
}

func newLanes(calls int) *lanes {
	return &lanes{
		clear:   prioritySemaphore{free: calls},
		blocked: prioritySemaphore{free: calls},
		stuck:   make(map[string]time.Time),
	}
}

// enter waits for a slot. leave returns the slot, and records whether the engine answered. Errors: from ctx.
func (l *lanes) enter(ctx context.Context, object string, late bool) (leave func(answered bool), err error) {
	lane := &l.clear
	if err := lane.acquire(ctx, late); err != nil {
		return nil, err
	}
	if l.isStuck(object) { // it may have become stuck while the request waited
		lane.release()
		lane = &l.blocked
		if err := lane.acquire(ctx, late); err != nil {
			return nil, err
		}
	}
	give := sync.OnceFunc(lane.release)
	overdue := time.AfterFunc(slotLimit, func() {
		l.markStuck(object)
		give()
	})
	return func(answered bool) {
		overdue.Stop()
		give()
		if answered {
			l.mu.Lock()
			defer l.mu.Unlock()
			delete(l.stuck, object)
		}
	}, nil
}

func (l *lanes) isStuck(object string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	_, stuck := l.stuck[object]
	return stuck
}

func (l *lanes) markStuck(object string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := time.Now()
	for o, at := range l.stuck {
		if now.Sub(at) > stuckFor {
			delete(l.stuck, o)
		}
	}
	l.stuck[object] = now
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
