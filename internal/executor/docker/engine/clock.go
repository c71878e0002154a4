package engine

import (
	"context"
	"strings"
	"time"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/dockerapi"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/guest/wire"
)

// A sandbox's deadline is by the ledger's clock. The clocks of the ledger, this machine and the engine may differ by
// any amount, and each may be set at any time. So the ledger and this program pass on only the remaining time, and
// process 1 gets it for clocks that it can read.

const (
	// clockAge is how long a reading of the engine's clock is used. An engine on this machine shares its time since boot,
	// which process 1 prefers. So that reading may be older.
	clockAge      = time.Minute
	localClockAge = time.Hour
	// clockStep is the largest tolerated step of this machine's clock since the reading.
	clockStep = time.Second
)

// engineClock is a reading of an engine's clock, and its time on this machine.
type engineClock struct{ said, at time.Time }

// noteClock stores the engine's clock from its answer. asked is when the request was sent.
func (e *Engine) noteClock(info dockerapi.Info, asked time.Time) {
	said := ParseTime(info.SystemTime)
	if said.IsZero() {
		return
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	e.clocks[info.ID] = engineClock{said: said, at: asked.Add(time.Since(asked) / 2)}
}

// engineTime returns the time by an engine's clock.
func (e *Engine) engineTime(ctx context.Context, instance string) (time.Time, error) {
	now, ok := e.knownTime(instance)
	if ok {
		return now, nil
	}
	if err := e.Confirm(ctx, instance); err != nil {
		return now, err
	}
	if now, ok = e.knownTime(instance); !ok {
		return time.Now(), nil // the engine reports no time
	}
	return now, nil
}

func (e *Engine) knownTime(instance string) (time.Time, bool) {
	e.mu.Lock()
	c, ok := e.clocks[instance]
	e.mu.Unlock()
	now := time.Now()
	passed := now.Sub(c.at)                             // by the monotonic clock
	stepped := now.Round(0).Sub(c.at.Round(0)) - passed // by the wall clock
	limit := clockAge
	if e.IsLocal() {
		limit = localClockAge
	}
	return c.said.Add(passed), ok && passed < limit && stepped.Abs() < clockStep
}

// IsLocal reports whether the engine's socket is a file on this machine.
func (e *Engine) IsLocal() bool { return strings.HasPrefix(e.API.DaemonHost(), "unix://") }

// EndsAt encodes for process 1 that its sandbox ends at end, by this machine's clock.
func (e *Engine) EndsAt(ctx context.Context, instance string, end time.Time) (wire.Ends, error) {
	now, err := e.engineTime(ctx, instance)
	if err != nil {
		return wire.Ends{}, err
	}
	left := time.Until(end)
	ends := wire.Ends{At: now.Add(left).UTC(), Left: left}
	if e.IsLocal() {
		ends.Boot, ends.SinceBoot = bootOfHost(left)
	}
	return ends, nil
}

// ParseTime parses an engine's time. The engine writes an unset time as the year 1, the zero time.
func ParseTime(s string) time.Time {
	t, err := time.Parse(time.RFC3339Nano, s)
	if err != nil || t.Year() <= 1 {
		return time.Time{}
	}
	return t.UTC()
}
