package fake

import (
	"context"
	"maps"
	"sync"
	"time"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/driver"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// Methods for tests: they change the backend out of band, and return its state.

// Fault makes an operation call f first and fail with its error. nil ends the fault.
func (x *Executor) Fault(op Op, f func(ctx context.Context) error) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.faults[op] = f
}

// Fail makes an operation fail with an error. nil ends that.
func (x *Executor) Fail(op Op, err error) {
	if err == nil {
		x.Fault(op, nil)
		return
	}
	x.Fault(op, func(context.Context) error { return err })
}

// Hang makes an operation hang until its caller gives up or Fault ends that.
func (x *Executor) Hang(op Op) {
	x.Fault(op, func(ctx context.Context) error {
		<-ctx.Done()
		return sandbox.Errorf(sandbox.Unavailable, "%s: %w", op, ctx.Err())
	})
}

// HangOne makes the backend hang on calls about one sandbox, until heal is called.
func (x *Executor) HangOne(sandboxID string) (heal func()) {
	hung := make(chan struct{})
	set := func(c chan struct{}) {
		x.mu.Lock()
		defer x.mu.Unlock()
		if b, ok := x.containers[sandboxID]; ok {
			b.hung = c
		}
	}
	set(hung)
	return sync.OnceFunc(func() {
		set(nil)
		close(hung)
	})
}

// Disconnect breaks every watch.
func (x *Executor) Disconnect() {
	x.mu.Lock()
	defer x.mu.Unlock()
	for w := range x.watchers {
		w.broken <- sandbox.Errorf(sandbox.Unavailable, "the connection broke")
	}
}

// BecomeInstance makes another instance answer from now on.
func (x *Executor) BecomeInstance(id string) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.instance = id
}

// Remove removes a sandbox out of band.
func (x *Executor) Remove(sandboxID string) {
	x.mu.Lock()
	x.remove(sandboxID)
	x.mu.Unlock()
	x.tell(sandboxID)
}

// Change changes the observation of a sandbox out of band.
func (x *Executor) Change(sandboxID string, f func(o *driver.Observation)) {
	x.mu.Lock()
	if b, ok := x.containers[sandboxID]; ok {
		if f(&b.obs); b.obs.State == sandbox.StateStopped {
			b.forget(x.now())
		}
		if b.record.follow(&b.obs, x.now()) {
			b.cpu = 0
		}
	}
	x.mu.Unlock()
	x.tell(sandboxID)
}

// Break breaks the shared resources of an environment, until Repair.
func (x *Executor) Break(ref driver.EnvironmentRef, how string) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.broken[ref] = how
}

// Plant creates a sandbox out of band.
func (x *Executor) Plant(spec driver.SandboxSpec) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.containers[spec.SandboxID] = newContainer(spec, x.now())
}

// PlantDependent creates an object out of band. Without a creation time, it is created now.
func (x *Executor) PlantDependent(l driver.Dependent) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if l.CreatedAt.IsZero() {
		l.CreatedAt = x.now()
	}
	x.objects[l.Name] = l
}

// Objects returns all objects except sandboxes, by name.
func (x *Executor) Objects() map[string]driver.Dependent {
	x.mu.Lock()
	defer x.mu.Unlock()
	return maps.Clone(x.objects)
}

// Burn adds CPU time to a sandbox.
func (x *Executor) Burn(sandboxID string, d time.Duration) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if b, ok := x.containers[sandboxID]; ok {
		b.cpu += d
		b.record.last().CPUTime += d
	}
}

// Sandboxes returns all sandboxes, by id.
func (x *Executor) Sandboxes() map[string]driver.Observation {
	x.mu.Lock()
	defer x.mu.Unlock()
	all := make(map[string]driver.Observation, len(x.containers))
	for id, b := range x.containers {
		all[id] = b.obs
	}
	return all
}

// Spec returns the latest spec of a sandbox, from Spawn or Assign.
func (x *Executor) Spec(sandboxID string) driver.SandboxSpec {
	x.mu.Lock()
	defer x.mu.Unlock()
	if b, ok := x.containers[sandboxID]; ok {
		return b.spec
	}
	return driver.SandboxSpec{}
}

// Spawned returns how often a sandbox was created.
func (x *Executor) Spawned(sandboxID string) int {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.spawned[sandboxID]
}

// Environments counts the provisioned environments.
func (x *Executor) Environments() int {
	x.mu.Lock()
	defer x.mu.Unlock()
	return len(x.installed)
}

// Meter makes the backend meter usage: the same for each environment.
func (x *Executor) Meter(days ...driver.Metered) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.metered = append([]driver.Metered{}, days...)
}

// MeterTogether makes the backend meter the usage of environments together, since a time. Meter applies to the others.
func (x *Executor) MeterTogether(refs []driver.EnvironmentRef, since time.Time, days ...driver.Metered) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.together = &driver.MeteredGroup{Environments: refs, Shared: true, Since: since, Days: days}
}

// TellDisk makes the backend report this disk for each sandbox with KeepDisk.
func (x *Executor) TellDisk(disk sandbox.KeptDisk) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.disk = &disk
}
