package loop

import (
	"context"
	"sync"
	"time"

	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// watcher keeps one backend's connection and looks at what changes there.
type watcher struct {
	loop    *Loop
	backend sandbox.Backend
	all     chan struct{} // holds an element when all sandboxes are to be looked at
	signal  chan struct{} // holds an element when some of pending are

	mu      sync.Mutex // guards what follows
	pending map[string]struct{}
}

// connect watches the backend, again and again. It says once when it loses it, and once when it
// has it again.
func (w *watcher) connect(ctx context.Context) {
	log := w.loop.c.Logger.With("backend", w.backend)
	away := false
	for ctx.Err() == nil {
		err := w.loop.engine.Watch(ctx, w.backend, func() {
			if away {
				log.Info("loop: the backend is in reach again")
			}
			away = false
			raise(w.all)
		}, w.hint)
		if ctx.Err() != nil {
			return
		}
		if !away {
			log.Warn("loop: the backend is out of reach; its sandboxes wait", "error", err)
		}
		away = true
		select {
		case <-ctx.Done():
		case <-time.After(w.loop.c.Reconnect):
		}
	}
}

// hint notes a sandbox to look at, or all of them (""), and holds up no event of the backend.
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

// survey looks at all sandboxes, at its pace and when the connection was made. It holds up no hint.
func (w *watcher) survey(ctx context.Context) {
	tick := time.NewTicker(w.loop.c.SurveyEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		case <-w.all:
		}
		if err := w.loop.engine.Survey(ctx, w.backend); w.loop.passed(ctx, PassSurvey, w.backend, err) {
			w.loop.c.Logger.Warn("loop: comparing a backend with the ledger", "backend", w.backend, "error", err)
		}
	}
}

// lookers bounds the hints that are followed at once: a sandbox that hangs holds up no other.
const lookers = 16

// follow looks at the sandboxes that were hinted at.
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
	err := w.loop.engine.Look(ctx, id)
	if err != nil && sandbox.CodeOf(err) != sandbox.NotFound && ctx.Err() == nil {
		w.loop.c.Logger.Warn("loop: looking at a sandbox", "sandbox", id, "error", err)
	}
}
