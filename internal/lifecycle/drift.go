package lifecycle

import (
	"context"
	"strconv"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/driver"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/ledger"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/ledger/drift"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/ledger/micro"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// Look compares one living sandbox with its backend and records the differences. It changes no backend. It leaves a
// sandbox that changed meanwhile, or that a caller works on, to the next look.
func (c *Core) Look(ctx context.Context, sandboxID string) error {
	var s *ledger.Sandbox
	err := c.store.Read(ctx, func(tx *ledger.Tx) (err error) {
		s, err = MustSandbox(tx, sandboxID)
		return err
	})
	if err != nil {
		return err
	}
	_, err = c.look(ctx, s)
	return err
}

// observable reports whether a look may contradict a row. While a caller works on the row it may not. An expired claim
// has no holder.
func (c *Core) observable(s *ledger.Sandbox, now micro.Time) bool {
	return s.Desired == ledger.Present && s.Phase != sandbox.PhasePending && !s.Claim.Holds(now) &&
		!c.hooks.Interrupted(s, now)
}

// look returns whether all is as the ledger has it. Only differences are written.
func (c *Core) look(ctx context.Context, s *ledger.Sandbox) (bool, error) {
	if s.Halted() {
		return false, c.lookAtKept(ctx, s)
	}
	if !c.observable(s, micro.At(c.now())) {
		return false, nil
	}
	x, err := c.BackendFor(s.Backend)
	if err != nil {
		return false, err
	}
	if err := c.MustReach(ctx, s.Backend, s.Instance); err != nil {
		return false, err
	}
	bounded, cancel := context.WithTimeout(ctx, inspectTimeout)
	defer cancel()
	obs, err := x.Inspect(bounded, c.handle(s))
	gone, absent := err, sandbox.CodeOf(err) == sandbox.NotFound
	if err != nil && !absent {
		return false, err // an error is not an observation
	}
	if obs.State == sandbox.StateRemoving {
		return false, nil // the next look sees it gone
	}
	differences := compare(s, obs)
	if !absent && len(differences) == 0 && !rests(s, obs) && !c.hooks.Differs(s, obs) {
		open, err := c.hasOpenDrift(ctx, s.ID)
		if err != nil || !open {
			return err == nil, err
		}
	}
	var l runtimeHistory
	if absent || x.Capabilities().Records {
		if l, err = historyOf(bounded, x, c.handle(s)); err != nil {
			return false, err
		}
	}
	return false, c.store.Write(ctx, func(tx *ledger.Tx) error {
		now, held, err := sandboxAndHold(tx, s.ID)
		if err != nil {
			return err
		}
		if now.LastSequence != s.LastSequence || !c.observable(now, tx.Now) {
			return nil
		}
		return tx.UpdateRow(now, func(now *ledger.Sandbox) error {
			if err := c.followHistory(tx, now, l.ran); err != nil {
				return err
			}
			if end := TimeUp(now, held, tx.Now); end != nil {
				// It ended by its own deadline, or the loop is about to end it. This is not drift.
				return c.End(tx, now, *end)
			}
			if absent {
				return c.vanish(tx, now, gone, l)
			}
			return c.record(tx, now, obs, differences)
		})
	})
}

func (c *Core) hasOpenDrift(ctx context.Context, sandboxID string) (open bool, err error) {
	err = c.store.Read(ctx, func(tx *ledger.Tx) error {
		found, err := drift.In(tx).OpenOf([]string{sandboxID})
		open = len(found) > 0
		return err
	})
	return open, err
}

// difference is one field whose value on the backend differs from the ledger's.
type difference struct {
	kind                      sandbox.DriftKind
	field, expected, observed string
}

const (
	fieldState = "state"
	// fieldBoot is the field of findings about a sandbox that stopped and started again unseen. Readers know its value.
	fieldBoot = "incarnation"
)

// hangs is the difference of a sandbox that does not answer, while its backend answers for others.
var hangs = difference{sandbox.DriftChanged, "response", "answers", "hangs"}

// recordHang records that a sandbox hangs. The next look that gets an answer resolves it.
func (c *Core) recordHang(ctx context.Context, s *ledger.Sandbox, o driver.Observation) error {
	return c.store.Write(ctx, func(tx *ledger.Tx) error {
		return tx.Update(s.ID, func(now *ledger.Sandbox) error {
			if !c.observable(now, tx.Now) {
				return nil
			}
			return c.recordOne(tx, now, o, hangs)
		})
	})
}

// compare returns how an observation differs from the row. Pure.
func compare(s *ledger.Sandbox, o driver.Observation) []difference {
	if o.Hangs {
		return []difference{hangs}
	}
	var d []difference
	state := func(kind sandbox.DriftKind, expected sandbox.State) {
		d = append(d, difference{kind, fieldState, string(expected), string(o.State)})
	}
	asleep, expected := s.Phase == sandbox.PhaseAsleep, sandbox.StateRunning
	if asleep {
		expected = restState(s)
	}
	switch o.State {
	case sandbox.StateRunning:
		if asleep {
			state(sandbox.DriftChanged, expected)
		}
	case sandbox.StatePaused:
		if !asleep || s.Status.State == sandbox.SandboxStopped {
			state(sandbox.DriftChanged, sandbox.StateRunning)
		}
	default:
		switch {
		case asleep && s.Status.State == sandbox.SandboxStopped, rests(s, o):
		case o.OOMKilled:
			state(sandbox.DriftOutOfMemory, expected)
		default:
			state(sandbox.DriftStopped, expected)
		}
	}
	if s.Phase == sandbox.PhaseAwake && o.State == sandbox.StateRunning && s.Meter.Boot > 0 && o.Boot > s.Meter.Boot {
		d = append(d, difference{
			sandbox.DriftStopped, fieldBoot, strconv.FormatInt(s.Meter.Boot, 10), strconv.FormatInt(o.Boot, 10),
		})
	}
	figure := func(field string, expected, observed int64) {
		if expected != observed {
			d = append(d,
				difference{sandbox.DriftChanged, field, strconv.FormatInt(expected, 10), strconv.FormatInt(observed, 10)})
		}
	}
	figure("memory_mb", s.MemoryMB, o.Resources.MemoryMB)
	figure("cpu_millis", s.CPUMillis, o.Resources.CPUMillis)
	figure("pids_limit", s.PIDs, o.Resources.PIDs)
	if o.Image != s.Image {
		d = append(d, difference{sandbox.DriftChanged, "image", s.Image, o.Image})
	}
	return append(d, compareCompanions(s, o)...)
}

// compareCompanions returns how the companions of a sandbox differ from its row. A program that ended is not a
// difference, because hooks record it. Pure.
func compareCompanions(s *ledger.Sandbox, o driver.Observation) (d []difference) {
	for _, name := range s.Companions.Names() {
		is, ok := o.Companions[name]
		if !ok {
			d = append(d, difference{sandbox.DriftChanged, "companion " + name, "present", "absent"})
			continue
		}
		want := s.Companions[name].Resources
		for _, figure := range []struct {
			field              string
			expected, observed int64
		}{
			{"memory_mb", want.MemoryMB, is.Resources.MemoryMB}, {"cpu_millis", want.CPUMillis, is.Resources.CPUMillis},
			{"pids_limit", want.PIDs, is.Resources.PIDs},
		} {
			if figure.expected != figure.observed {
				d = append(d, difference{sandbox.DriftChanged, "companion " + name + " " + figure.field,
					strconv.FormatInt(figure.expected, 10), strconv.FormatInt(figure.observed, 10)})
			}
		}
	}
	return d
}

func restState(s *ledger.Sandbox) sandbox.State {
	if s.Status.State == sandbox.SandboxStopped {
		return sandbox.StateStopped
	}
	return sandbox.StatePaused
}

// record stores differences as findings, and resolves findings whose fields are as expected again. It follows the
// backend if a sandbox was put to sleep, was woken, or died.
func (c *Core) record(tx *ledger.Tx, s *ledger.Sandbox, o driver.Observation, differences []difference) error {
	open, err := drift.In(tx).OpenOf([]string{s.ID})
	if err != nil {
		return err
	}
	if rests(s, o) {
		if err := c.followRest(tx, s, o); err != nil {
			return err
		}
	}
	if err := c.hooks.Observed(tx, s, o); err != nil {
		return err
	}
	seen := make(map[string]bool)
	for _, d := range differences {
		seen[d.field] = true
		if err := c.recordOne(tx, s, o, d); err != nil {
			return err
		}
	}
	for _, f := range open[s.ID] {
		var how string
		switch {
		case seen[f.Field]:
		case f.Kind == sandbox.DriftChanged && f.Field == fieldState:
			how = "the lease follows it"
		case f.Kind == sandbox.DriftChanged:
			how = "it is as expected again"
		case f.Field == fieldBoot && micro.At(f.LastSeenAt).Add(micro.SpanOf(CrashClears)) <= tx.Now:
			how = "it has run since"
		}
		if how == "" {
			continue
		}
		if err := drift.In(tx).Resolve(f.ID, how); err != nil {
			return err
		}
	}
	if RanLongEnough(s, tx.Now) {
		if err := recovered(tx, s); err != nil {
			return err
		}
	}
	s.ObservedAt = tx.Now
	if s.Pooled() && s.Desired == ledger.Present {
		s.Schedule.DueAt = tx.Now // after a wake from outside it goes back to sleep
	}
	return nil
}

func (c *Core) recordOne(tx *ledger.Tx, s *ledger.Sandbox, o driver.Observation, d difference) error {
	_, isNew, err := drift.In(tx).See(drift.Finding{
		Kind: d.kind, SandboxID: s.ID, LeaseID: s.Lease(), EnvironmentID: s.EnvironmentID, Instance: s.Instance,
		Field: d.field, Expected: d.expected, Observed: d.observed,
	})
	if err != nil {
		return err
	}
	data := map[string]any{"kind": d.kind, "field": d.field, "expected": d.expected, "observed": d.observed}
	if isNew {
		if err := tx.AppendSandboxEvent(s, sandbox.EventDrift, data); err != nil {
			return err
		}
	}
	switch {
	case d.field == fieldBoot:
		return c.restartedUnseen(tx, s)
	case d.field != fieldState:
		return nil
	case d.kind == sandbox.DriftStopped || d.kind == sandbox.DriftOutOfMemory:
		return c.stopped(tx, s, o)
	case o.State == sandbox.StatePaused:
		s.Status.StopReason = sandbox.StopOutside
		data["mode"], data["reason"] = sandbox.SleepPause, s.Status.StopReason
		return c.EnterPhase(tx, s, sandbox.PhaseAsleep, tx.Now, sandbox.EventAsleep, data)
	default:
		restarted := s.Status.State == sandbox.SandboxStopped
		if restarted {
			s.Meter.Restart()
		}
		if err := c.hooks.Started(tx, s, restarted); err != nil {
			return err
		}
		return c.EnterPhase(tx, s, sandbox.PhaseAwake, tx.Now, sandbox.EventAwake, data)
	}
}
