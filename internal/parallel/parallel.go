// Package parallel processes many items, a limited number at the same time.
package parallel

import (
	"errors"
	"sync"
)

// Each calls do for each item, for up to limit of them at the same time: a call that hangs delays few others. It
// returns all errors.
func Each[T any](limit int, all []T, do func(*T) error) error {
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
