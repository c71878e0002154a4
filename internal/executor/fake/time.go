package fake

import (
	"context"
	"time"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/driver"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// KeepTime makes sandboxes rest and end by their limits plus grace, as with driver.Capabilities.KeepsTime. A due change
// happens at the next call to the backend, with the time when it was due. Watchers get no event.
func (x *Executor) KeepTime(grace time.Duration) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.grace = grace
}

// Touch implements driver.Executor.
func (x *Executor) Touch(ctx context.Context, h driver.Handle, l driver.Limits) (driver.Observation, error) {
	if err := x.enter(ctx, OpTouch, h.Instance); err != nil {
		return driver.Observation{}, err
	}
	defer x.mu.Unlock()
	b, ok := x.containers[h.SandboxID]
	if !ok {
		return driver.Observation{}, notFound(h)
	}
	b.limits, b.usedAt = l, x.now()
	return x.observed(b), nil
}

// keepTime puts due sandboxes to rest. The caller must hold mu.
func (x *machine) keepTime() {
	if x.grace < 0 {
		return
	}
	now := x.now()
	for _, b := range x.containers {
		at, ends := x.restsAt(b)
		if b.obs.State != sandbox.StateRunning || !ends || at.After(now) {
			continue
		}
		b.obs.State, b.obs.StoppedAt, b.obs.Rest = sandbox.StateStopped, at, sandbox.StopIdle
		b.secrets = nil
		b.forget(now)
		b.record.stop(at)
	}
}

// restsAt returns when an unused container rests, and whether it does at all.
func (x *machine) restsAt(b *container) (at time.Time, ends bool) {
	used := b.usedAt
	for _, c := range b.commands {
		switch {
		case c.log: // a process does not count as use
		case !c.hasEnded():
			return time.Time{}, false
		case c.began.Add(c.result.Duration.D()).After(used):
			used = c.began.Add(c.result.Duration.D())
		}
	}
	unused := b.limits.TTL
	if after := b.limits.SleepAfter; after > 0 && (unused == 0 || after < unused) {
		unused = after
	}
	return used.Add(unused.D() + x.grace), unused > 0
}

// isOver reports whether a container has ended by its ttl. Then it cannot start again.
func (x *machine) isOver(b *container, now time.Time) bool {
	return x.grace >= 0 && b.limits.TTL > 0 && !b.usedAt.Add(b.limits.TTL.D()+x.grace).After(now)
}
