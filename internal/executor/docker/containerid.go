package docker

import (
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/driver"
)

var _ driver.ContainerHost = (*Executor)(nil)

// maxKnownContainers limits the sandboxes whose containers' ids are cached.
const maxKnownContainers = 1 << 14

// ContainerID implements driver.ContainerHost.
func (e *Executor) ContainerID(h driver.Handle) string {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.containers[h]
}

// rememberContainer caches the id of a container, as its creation or an inspection returned it.
func (e *Executor) rememberContainer(h driver.Handle, id string) {
	if h.Companion != "" {
		return
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if len(e.containers) >= maxKnownContainers {
		clear(e.containers)
	}
	e.containers[h] = id
}

func (e *Executor) forgetContainer(h driver.Handle) {
	e.mu.Lock()
	defer e.mu.Unlock()
	delete(e.containers, h)
}
