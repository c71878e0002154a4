package containers

import (
	"sync"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/driver"
)

// maxKnown limits the sandboxes in the cache.
const maxKnown = 1 << 14

// known caches values of sandboxes that this program has seen.
type known[V any] struct {
	mu sync.Mutex
	of map[driver.Handle]V
}

func (k *known[V]) get(h driver.Handle) (V, bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	v, ok := k.of[h]
	return v, ok
}

func (k *known[V]) set(h driver.Handle, v V) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.of == nil || len(k.of) >= maxKnown {
		k.of = make(map[driver.Handle]V)
	}
	k.of[h] = v
}

func (k *known[V]) forget(h driver.Handle) {
	k.mu.Lock()
	defer k.mu.Unlock()
	delete(k.of, h)
}

// Remember caches the id of a container, from its creation or an inspection.
func (cs *Containers) Remember(h driver.Handle, id string) {
	if h.Companion == "" {
		cs.ids.set(h, id)
	}
}

// Knows reports whether this program has created or inspected a sandbox's container on the handle's engine.
func (cs *Containers) Knows(h driver.Handle) bool {
	_, known := cs.ids.get(h)
	return known
}

// Forget forgets the id of a container that was removed.
func (cs *Containers) Forget(h driver.Handle) { cs.ids.forget(h) }
