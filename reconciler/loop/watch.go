package loop

import (
	"context"
	"sync"
	"time"

	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// watcher keeps the connection to one backend and checks changed sandboxes.
type watcher struct {
	loop    *Loop
	backend sandbox.Backend
	all     chan struct{} // has an element when all sandboxes must be checked
	signal  chan struct{} // has an element when pending is not empty

	mu      sync.Mutex // guards the fields below
	pending map[string]struct{}
}

// connect watches the backend and reconnects. It logs the loss of the connection and the recovery, once each.
func (w *watcher) connect(ctx context.Context) {
	log := w.loop.c.Logger.With("backend", w.backend)
	away := false
	for ctx.Err() == nil {
		err := w.loop.leases.Watch(ctx, w.backend, func() {
			if away {
				log.Info("loop: the backend is reachable again")
			}
			away = false
			raise(w.all)
		}, w.hint)
		if ctx.Err() != nil {
			return
		}
		if !away {
			log.Warn("loop: the backend is unreachable; its sandboxes wait", "error", err)
		}
		away = true
		select {
		case <-ctx.Done():
		case <-time.After(w.loop.c.Reconnect):
		}
	}
}

// hint records a sandbox to check, or all of them (""). It does not block.
func (w *watcher) hint(sandboxID string) {
	if sandboxID == "" {
		raise(w.all)
		return
	}
	w.mu.Lock()
	w.pending[sandboxID] = struct{}{}
	w.mu.Unlock()
	raise(w.signal)
}

func raise(signal chan<- struct{}) {
	select {
	case signal <- struct{}{}:
	default:
	}
}

// resync checks all sandboxes at its interval and after each reconnect. It does not delay hints.
func (w *watcher) resync(ctx context.Context) {
	tick := time.NewTicker(w.loop.c.ResyncEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		case <-w.all:
		}
		if err := w.loop.leases.Resync(ctx, w.backend); w.loop.passed(ctx, PassResync, w.backend, err) {
			w.loop.c.Logger.Warn("loop: comparing a backend with the ledger", "backend", w.backend, "error", err)
		}
	}
}

// lookers limits concurrent checks of hinted sandboxes, so that a hanging one does not delay others.
const lookers = 16

// follow checks the hinted sandboxes.
func (w *watcher) follow(ctx context.Context) {
	var looking sync.WaitGroup
	defer looking.Wait()
	free := make(chan struct{}, lookers)
	for {
		select {
		case <-ctx.Done():
			return
		case <-w.signal:
		}
		w.mu.Lock()
		pending := w.pending
		w.pending = make(map[string]struct{})
		w.mu.Unlock()
		for id := range pending {
			free <- struct{}{}
			looking.Go(func() {
				w.look(ctx, id)
				<-free
			})
		}
	}
}

func (w *watcher) look(ctx context.Context, id string) {
	err := w.loop.leases.Look(ctx, id)
	if err != nil && sandbox.CodeOf(err) != sandbox.NotFound && ctx.Err() == nil {
		w.loop.c.Logger.Warn("loop: checking a sandbox", "sandbox", id, "error", err)
	}
}
