package fake

import (
	"context"
	"slices"
	"time"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/driver"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// record has the boots of a sandbox.
type record struct {
	boots []driver.Boot
}

func (r *record) start(at time.Time) {
	r.boots = append(r.boots, driver.Boot{Number: int64(len(r.boots) + 1), StartedAt: at})
}

func (r *record) last() *driver.Boot { return &r.boots[len(r.boots)-1] }

// stop ends the running boot, if any.
func (r *record) stop(at time.Time) {
	if i := r.last(); i.StoppedAt.IsZero() {
		i.StoppedAt = at
	}
}

// follow updates the record from an observation, and reports whether that is a new start.
func (r *record) follow(o *driver.Observation, now time.Time) bool {
	isOver := !r.last().StoppedAt.IsZero()
	switch {
	case o.State != sandbox.StateRunning && o.State != sandbox.StatePaused:
		at := o.StoppedAt
		if at.Before(r.last().StartedAt) || at.After(now) {
			at = now
		}
		r.stop(at)
	case isOver:
		r.start(now)
		return true
	}
	return false
}

// Record makes the backend count starts, and record each start and stop even of removed sandboxes, as with
// driver.Capabilities.Records.
func (x *Executor) Record() {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.records = true
}

// Remember makes the backend report the last boot of a removed sandbox, as a Docker Engine does from its events.
func (x *Executor) Remember() {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.remembers = true
}

// KeepReadings makes List return the usage of sandboxes at the last TakeReadings, as with driver.Capabilities.Readings.
func (x *Executor) KeepReadings() {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.readings = true
}

// TakeReadings reads the usage of all running sandboxes.
func (x *Executor) TakeReadings() {
	x.mu.Lock()
	defer x.mu.Unlock()
	for _, b := range x.containers {
		if b.obs.State == sandbox.StateRunning {
			b.reading = driver.Reading{Usage: b.usage(), Boot: x.observed(b).Boot, At: x.now()}
		}
	}
}

// Restart stops and starts a sandbox out of band.
func (x *Executor) Restart(sandboxID string) {
	x.mu.Lock()
	now := x.now()
	if b, ok := x.containers[sandboxID]; ok {
		b.forget(now)
		b.secrets, b.cpu = nil, 0
		b.record.stop(now)
		b.record.start(now)
		b.obs.State, b.obs.StartedAt = sandbox.StateRunning, now
	}
	x.mu.Unlock()
	x.tell(sandboxID)
}

// Boots implements driver.Executor.
func (x *Executor) Boots(ctx context.Context, h driver.Handle) ([]driver.Boot, error) {
	if err := x.enter(ctx, OpBoots, h.Instance); err != nil {
		return nil, err
	}
	defer x.mu.Unlock()
	b, there := x.containers[h.SandboxID]
	r := x.removed[h.SandboxID]
	if there {
		r = &b.record
	}
	switch {
	case r == nil:
		return nil, notFound(h)
	case x.records:
		return slices.Clone(r.boots), nil
	default:
		last := *r.last()
		last.Number, last.CPUTime = 0, 0
		return []driver.Boot{last}, nil
	}
}

// observed returns the backend's observation of a sandbox.
func (x *machine) observed(b *container) driver.Observation {
	o := b.obs
	if x.records {
		o.Boot = b.record.last().Number
	}
	if b.spec.KeepDisk {
		o.Disk = x.disk
	}
	return o
}
