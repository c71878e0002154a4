package docker

import (
	"context"
	"strings"
	"time"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/dockerapi"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/driver"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/guest/wire"
)

// A sandbox's deadline is of the ledger's clock. That clock and those of this machine and of the engine may differ by
// any amount, and each may be set at any time. So only what is left is passed on, and process 1 gets it by clocks that
// it can read itself.

const (
	// clockAge is how long the engine's clock is known for, once it was read. An engine of this machine shares its time since
	// boot, which counts first, so its clock may be older.
	clockAge      = time.Minute
	localClockAge = time.Hour
	// clockStep is how far this machine's clock may be set meanwhile.
	clockStep = time.Second
)

// engineClock is what an engine's clock said once, and when that was on this machine.
type engineClock struct{ said, at time.Time }

// noteClock keeps what the engine's answer says of its clock. The answer to a question came as asked.
func (e *Executor) noteClock(info dockerapi.Info, asked time.Time) {
	said := parseTime(info.SystemTime)
	if said.IsZero() {
		return
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	e.clocks[info.ID] = engineClock{said: said, at: asked.Add(time.Since(asked) / 2)}
}

// engineTime returns the time by an engine's clock.
func (e *Executor) engineTime(ctx context.Context, instance string) (time.Time, error) {
	now, ok := e.knownTime(instance)
	if ok {
		return now, nil
	}
	if err := e.confirm(ctx, instance); err != nil {
		return now, err
	}
	if now, ok = e.knownTime(instance); !ok {
		return time.Now(), nil // an engine that does not tell its time
	}
	return now, nil
}

func (e *Executor) knownTime(instance string) (time.Time, bool) {
	e.mu.Lock()
	c, ok := e.clocks[instance]
	e.mu.Unlock()
	now := time.Now()
	passed := now.Sub(c.at)                             // by a monotonic clock
	stepped := now.Round(0).Sub(c.at.Round(0)) - passed // by the clock that shows the time
	limit := clockAge
	if e.isLocal() {
		limit = localClockAge
	}
	return c.said.Add(passed), ok && passed < limit && stepped.Abs() < clockStep
}

// isLocal reports whether the engine's socket is a file of this machine.
func (e *Executor) isLocal() bool { return strings.HasPrefix(e.api.DaemonHost(), "unix://") }

// endOf returns the moment of a specification's deadline on this machine. It must be asked as soon as the
// specification comes.
func endOf(spec driver.SandboxSpec) time.Time {
	if spec.AsOf.IsZero() {
		return spec.Deadline
	}
	return time.Now().Add(spec.Deadline.Sub(spec.AsOf))
}

// endsAt tells process 1 when its sandbox ends, which is the given moment on this machine.
func (e *Executor) endsAt(ctx context.Context, instance string, end time.Time) (wire.Ends, error) {
	now, err := e.engineTime(ctx, instance)
	if err != nil {
		return wire.Ends{}, err
	}
	left := time.Until(end)
	ends := wire.Ends{At: now.Add(left).UTC(), Left: left}
	if e.isLocal() {
		ends.Boot, ends.SinceBoot = bootOfHost(left)
	}
	return ends, nil
}
