//go:build linux

package identity

import (
	"errors"
	"runtime"
	"sync"
)

// keptThreads is how many threads of Workers wait for more work. Others end with theirs.
const keptThreads = 2

// Workers do work with the file-system identity of one user, as Do does, on threads that stay for more.
type Workers struct {
	uid, gid int
	taken    func() error
	jobs     chan func()
	places   chan struct{} // one for each thread that stays
	threads  sync.WaitGroup
}

// NewWorkers starts nothing. taken is called on each thread once it has the identity. Close ends the threads.
func NewWorkers(uid, gid int, taken func() error) *Workers {
	return &Workers{uid: uid, gid: gid, taken: taken, jobs: make(chan func()), places: make(chan struct{}, keptThreads)}
}

// Do calls work and returns its error. It is not called after Close.
func (w *Workers) Do(work func() error) error {
	done := make(chan error, 1)
	job := func() { done <- work() }
	select {
	case w.jobs <- job: // a thread waits for it
	default:
		w.threads.Go(func() {
			runtime.LockOSThread() // without an unlock, the thread ends with the goroutine
			if err := errors.Join(Take(w.uid, w.gid), w.taken()); err != nil {
				done <- err
				return
			}
			job()
			w.stay()
		})
	}
	return <-done
}

// stay does more work, if there is a place.
func (w *Workers) stay() {
	select {
	case w.places <- struct{}{}:
	default:
		return
	}
	for job := range w.jobs {
		job()
	}
}

// Close ends the threads that wait, and waits until they have ended.
func (w *Workers) Close() {
	close(w.jobs)
	w.threads.Wait()
}
