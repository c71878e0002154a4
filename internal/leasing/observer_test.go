package leasing_test

import (
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/driver"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/executor/fake"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/ledger/counts"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// diary is an observer that records its calls.
type diary struct {
	mu    sync.Mutex // guards what follows
	lines []string
	gone  []time.Duration
}

func (d *diary) Stepped(b sandbox.Backend, step string, code sandbox.Code, _ time.Duration) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.lines = append(d.lines, fmt.Sprintf("%s %s %s", b, step, code))
}

func (d *diary) Destroyed(b sandbox.Backend, endedBy sandbox.EndedBy, after time.Duration) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.lines = append(d.lines, fmt.Sprintf("%s gone by %s", b, endedBy))
	d.gone = append(d.gone, after)
}

func (d *diary) read() []string {
	d.mu.Lock()
	defer d.mu.Unlock()
	return slices.Clone(d.lines)
}

func TestAnObserverGetsStepsAndTheDelayOfRemovals(t *testing.T) {
	inWorld(t, func(w *world) {
		told := &diary{}
		w.close()
		w.observe = told
		w.open()
		w.environment()
		w.startLoop()
		w.acquire(ann)
		w.backend.Fail(fake.OpKill, away)
		if _, err := w.engine.Release(w.Context(),
			sandbox.LeaseRef{ID: annLease}); sandbox.CodeOf(err) != sandbox.Unavailable {
			w.Fatalf("a release while nothing can be killed: %v", err)
		}
		later(time.Minute)
		if c, err := w.engine.Counts(w.Context()); err != nil || c.Ending[sandbox.Docker] < time.Minute ||
			c.Ending[sandbox.Docker] > 2*time.Minute {
			w.Errorf("a minute later it is to go for %v: %v", c.Ending[sandbox.Docker], err)
		}
		w.backend.Fail(fake.OpKill, nil)
		later(10 * time.Minute)
		lines := slices.Compact(told.read())
		if want := []string{
			"docker spawn ", "docker kill unavailable", "docker kill ", "docker gone by release",
		}; !slices.Equal(lines, want) {
			w.Errorf("it observed %q, want %q", lines, want)
		}
		if len(told.gone) != 1 || told.gone[0] < time.Minute || told.gone[0] > 10*time.Minute {
			w.Errorf("it was gone after %v", told.gone)
		}
	})
}

func TestCountsAreOfWhatExists(t *testing.T) {
	inWorld(t, func(w *world) {
		w.environment(func(p *sandbox.PutEnvironment) { p.WarmPool = &sandbox.WarmPool{Size: 2} })
		w.startLoop()
		w.acquire(ann)
		w.acquire(bob)
		if _, err := w.engine.Sleep(w.Context(), sandbox.LeaseRef{ID: annLease}); err != nil {
			w.Fatal(err)
		}
		later(time.Minute)
		c, err := w.engine.Counts(w.Context())
		if err != nil {
			w.Fatal(err)
		}
		seen := make(map[counts.Group]bool)
		for _, s := range c.Sandboxes {
			seen[s] = true
		}
		for _, want := range []counts.Group{
			{Backend: sandbox.Docker, Phase: sandbox.PhaseAsleep, N: 1},
			{Backend: sandbox.Docker, Phase: sandbox.PhaseAwake, N: 1},
			{Backend: sandbox.Docker, Phase: sandbox.PhaseAsleep, Pooled: true, N: 2},
		} {
			if !seen[want] || len(seen) != 3 {
				w.Errorf("it counts %+v, and not %+v", c.Sandboxes, want)
			}
		}
		if ending, known := c.Ending[sandbox.Docker]; !known || ending != 0 {
			w.Errorf("nothing is to go, for %v", ending)
		}
		if c.Overdue != 0 || len(c.Findings) != 0 || !w.engine.Reachable()[sandbox.Docker] {
			w.Errorf("it is %+v", c)
		}
	})
}

func TestCountsShowOverdueWorkAndDrift(t *testing.T) {
	inWorld(t, func(w *world) {
		w.environment()
		l := w.acquire(ann)
		w.backend.Change(l.SandboxID, func(o *driver.Observation) { o.Resources.MemoryMB++ })
		if err := w.engine.Look(w.Context(), l.SandboxID); err != nil {
			w.Fatal(err)
		}
		later(24 * time.Hour) // no loop runs
		c, err := w.engine.Counts(w.Context())
		if err != nil || c.Overdue < 12*time.Hour || c.Overdue > 24*time.Hour || c.Findings[sandbox.DriftChanged] != 1 {
			w.Errorf("it is %+v: %v", c, err)
		}
	})
}
