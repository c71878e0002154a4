package docker

import (
	"context"
	"strings"
	"time"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/dockerapi"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/driver"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/guest/wire"
)

// A sandbox's deadline is by the ledger's clock. The clocks of the ledger, this machine and the engine may
// differ by any amount, and each may be set at any time. So only the remaining time is passed on, and process
// 1 gets it for clocks that it can read itself.

const (
	// clockAge is how long a reading of the engine's clock is used. An engine on this machine shares its time
	// since boot, which has precedence, so the reading may be older.
	clockAge      = time.Minute
	localClockAge = time.Hour
	// clockStep is how far this machine's clock may be set meanwhile.
	clockStep = time.Second
)

// engineClock is a reading of an engine's clock, and its time on this machine.
type engineClock struct{ said, at time.Time }

// noteClock stores the engine's clock from its answer. asked is when the request was sent.
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
		return time.Now(), nil // the engine reports no time
	}
	return now, nil
}

func (e *Executor) knownTime(instance string) (time.Time, bool) {
	e.mu.Lock()
	c, ok := e.clocks[instance]
	e.mu.Unlock()
	now := time.Now()
	passed := now.Sub(c.at)                             // by a monotonic clock
	stepped := now.Round(0).Sub(c.at.Round(0)) - passed // by the wall clock
	limit := clockAge
	if e.isLocal() {
		limit = localClockAge
	}
	return c.said.Add(passed), ok && passed < limit && stepped.Abs() < clockStep
}

// isLocal reports whether the engine's socket is a file on this machine.
func (e *Executor) isLocal() bool { return strings.HasPrefix(e.api.DaemonHost(), "unix://") }

// endOf returns the deadline of a specification on this machine's clock. Call it as soon as the specification
// arrives.
func endOf(spec driver.SandboxSpec) time.Time {
	if spec.AsOf.IsZero() {
		return spec.Deadline
	}
	return time.Now().Add(spec.Deadline.Sub(spec.AsOf))
}

// endsAt encodes for process 1 when its sandbox ends: at end, by this machine's clock.
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
