package docker

import (
	"context"
	"slices"
	"sync"
	"time"
)

// slotLimit is how long a request holds a slot. One that takes longer waits for something of its object's own, such
// as a container's lock, and is no work for the engine.
const slotLimit = 5 * time.Second

// stuckFor is how long an object is remembered that was not asked for again.
const stuckFor = 10 * time.Minute

// lanes give requests their slots. Requests about an object that hangs have slots of their own, so that
// sandboxes that hang hold up no others, however many they are.
type lanes struct {
	clear, blocked slots

	mu    sync.Mutex // guards what follows
	stuck map[string]time.Time
}

func newLanes(calls int) *lanes {
	return &lanes{clear: slots{free: calls}, blocked: slots{free: calls}, stuck: make(map[string]time.Time)}
}

// enter waits for a slot. leave gives it back, and says whether the engine answered. Errors: ctx's.
func (l *lanes) enter(ctx context.Context, object string, late bool) (leave func(answered bool), err error) {
	lane := &l.clear
	if err := lane.take(ctx, late); err != nil {
		return nil, err
	}
	if l.isStuck(object) { // perhaps since it began to wait
		lane.give()
		lane = &l.blocked
		if err := lane.take(ctx, late); err != nil {
			return nil, err
		}
	}
	give := sync.OnceFunc(lane.give)
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

// slots bounds the requests that are under way at once. Requests without a waiting caller come after
// all others, except that every eighth slot is theirs: they are late, and never starve.
type slots struct {
	mu    sync.Mutex // guards what follows
	free  int
	soon  []chan struct{} // those who wait, the longest first; closed when the slot is theirs
	late  []chan struct{}
	given int // slots given to soon in a row while others waited in late
}

// lateShare is the part of the slots, one in so many, that late requests are given in any case.
const lateShare = 8

// take waits for a slot. Errors: ctx's.
func (s *slots) take(ctx context.Context, late bool) error {
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
	if i < 0 { // it was given at the same moment
		s.give()
	}
	return ctx.Err()
}

// give passes a slot on, or frees it.
func (s *slots) give() {
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
