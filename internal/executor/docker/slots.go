package docker

import (
	"context"
	"slices"
	"sync"
)

// slots bounds the requests that are under way at once. Requests whose end nobody waits for come after
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
