package leasing

import (
	"errors"
	"sync"
)

// atOnce does something to each of all, to up to limit of them at once: one that hangs holds up few others. It
// returns all errors.
func atOnce[T any](limit int, all []T, do func(*T) error) error {
	failed := make([]error, len(all))
	next := make(chan int)
	var workers sync.WaitGroup
	for range min(limit, len(all)) {
		workers.Go(func() {
			for i := range next {
				failed[i] = do(&all[i])
			}
		})
	}
	for i := range all {
		next <- i
	}
	close(next)
	workers.Wait()
	return errors.Join(failed...)
}
