//go:build linux

package identity

import (
	"errors"
	"runtime"
	"sync"
)

// keptThreads is the number of idle threads that Workers keeps. Further threads end with their work.
const keptThreads = 2

// Workers runs work with the file-system identity of one user, as Do does, on reused threads.
type Workers struct {
	uid, gid int
	taken    func() error
	jobs     chan func()
	places   chan struct{} // one for each kept thread
	threads  sync.WaitGroup
}

// NewWorkers starts no threads. It calls taken on each thread that has taken the identity. Close ends the
// threads.
func NewWorkers(uid, gid int, taken func() error) *Workers {
	return &Workers{uid: uid, gid: gid, taken: taken, jobs: make(chan func()), places: make(chan struct{}, keptThreads)}
}

// Do calls work and returns its error. It must not be called after Close.
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

// stay makes the thread wait for more work, if there is a place.
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

// Close ends the idle threads and waits for them.
func (w *Workers) Close() {
	close(w.jobs)
	w.threads.Wait()
}
