package leasing_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/executor/fake"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// resyncPace is the interval of resyncs in seconds. If nothing better is known, usage ends when a resync last saw the
// sandbox.
const resyncPace = 30.0

// used returns the billed time of a world's leases in seconds.
func (w *world) used() float64 {
	w.Helper()
	report, err := w.engine.Costs(w.Context(), sandbox.CostQuery{})
	if err != nil {
		w.Fatal(err)
	}
	return report.Total.AwakeSeconds + report.Total.AsleepSeconds
}

// TestUsageEndsWithTheSandboxAndNotWithTheOutage ends sandboxes while no reconciler can record it. If a backend records
// removals, usage ends at that second. On other backends, it ends when the sandbox was last seen.
func TestUsageEndsWithTheSandboxAndNotWithTheOutage(t *testing.T) {
	const outage = 10 * time.Minute
	short := func(p *sandbox.PutEnvironment) { p.TTL = sandbox.Duration(3 * time.Minute) }
	for name, end := range map[string]struct {
		// run ends ann's sandbox and returns once the loop has recorded it.
		run func(w *world, l sandbox.Lease)
		by  sandbox.EndedBy
	}{
		"TheReconcilerDiesOnceItHasRemovedTheSandbox": {func(w *world, l sandbox.Lease) {
			w.stop()
			dead, die := context.WithCancel(context.Background())
			hung := w.newEngine(w.store)
			w.backend.Fault(fake.OpKill, func(context.Context) error {
				w.backend.Remove(l.SandboxID)
				<-dead.Done()
				return away
			})
			go func() { _, _ = hung.Release(dead, sandbox.LeaseRef{ID: annLease}) }()
			synctest.Wait()
			closed := make(chan struct{})
			go func() { _ = hung.Close(); close(closed) }()
			later(outage)
			w.backend.Fault(fake.OpKill, nil)
			w.startLoop()
			later(time.Minute)
			die()
			<-closed
		}, sandbox.EndedByRelease},
		"ItIsRemovedByHandAndItsTTLPassesWhileTheReconcilerIsDown": {func(w *world, l sandbox.Lease) {
			w.close()
			w.backend.Remove(l.SandboxID)
			later(outage)
			w.open()
			w.startLoop()
			later(time.Minute)
		}, sandbox.EndedByTTL},
		"ItIsRemovedByHandAndItsLeaseLivesWhenTheReconcilerIsBack": {func(w *world, l sandbox.Lease) {
			w.close()
			w.backend.Remove(l.SandboxID)
			later(time.Minute)
			w.open()
			w.startLoop()
			later(time.Minute)
		}, sandbox.EndedByVanished},
		"WhatItHadBesideCannotBeRemovedForLong": {func(w *world, l sandbox.Lease) {
			w.backend.Fault(fake.OpKill, func(context.Context) error {
				w.backend.Remove(l.SandboxID)
				return sandbox.Errorf(sandbox.Failed, "remove volume: device busy")
			})
			w.condition("game.finished", "")
			later(outage)
			w.want(w.lease(annLease), sandbox.LeaseExpired, sandbox.EndedByCondition)
			w.backend.Fault(fake.OpKill, nil)
			later(time.Minute)
		}, sandbox.EndedByCondition},
	} {
		for _, remembers := range []bool{true, false} {
			what := map[bool]string{true: "Remembered", false: "Forgotten"}[remembers]
			t.Run(name+"/"+what, func(t *testing.T) {
				inWorld(t, func(w *world) {
					if remembers {
						w.backend.Remember()
					}
					w.startLoop()
					w.environment(short)
					l := w.acquire(ann)
					later(70 * time.Second)
					existed := 70.0
					end.run(w, l)
					w.want(w.lease(annLease), sandbox.LeaseDestroyed, end.by)
					least := existed - resyncPace
					if remembers {
						least = existed - 1
					}
					if used := w.used(); used < least || used > existed+1 {
						t.Errorf("%.1f s are billed for a sandbox that existed for %.0f s", used, existed)
					}
				})
			})
		}
	}
}

// TestAKillWhoseSandboxIsNotKnownToHaveBeenThereIsTakenAgain: a successful removal does not show when the sandbox went.
func TestAKillWhoseSandboxIsNotKnownToHaveBeenThereIsTakenAgain(t *testing.T) {
	inWorld(t, func(w *world) {
		w.startLoop()
		w.environment()
		w.acquire(ann)
		later(time.Minute)
		w.backend.Fail(fake.OpBoots, away)
		w.condition("game.finished", "")
		later(10 * time.Minute)
		if l := w.lease(annLease); l.Status != sandbox.LeaseExpired || l.LastError == "" {
			t.Errorf("it is %s, last error %q", l.Status, l.LastError)
		}
		w.backend.Fail(fake.OpBoots, nil)
		later(time.Minute)
		w.want(w.lease(annLease), sandbox.LeaseDestroyed, sandbox.EndedByCondition)
		if used := w.used(); used < 60-resyncPace || used > 61 {
			t.Errorf("%.1f s are billed for a sandbox that existed for 60 s", used)
		}
	})
}

// TestALeaseThatEndsUnderAWatchIsUsedUntilThen: a sandbox exists until the watch reports it missing.
func TestALeaseThatEndsUnderAWatchIsUsedUntilThen(t *testing.T) {
	inWorld(t, func(w *world) {
		w.startLoop()
		w.environment()
		l := w.acquire(ann)
		later(25 * time.Second) // no resync has seen it yet
		for _, op := range []fake.Op{fake.OpKill, fake.OpInspect, fake.OpBoots} {
			w.backend.Fail(op, away)
		}
		w.condition("game.finished", "")
		w.backend.Remove(l.SandboxID)
		later(10 * time.Minute)
		for _, op := range []fake.Op{fake.OpKill, fake.OpInspect, fake.OpBoots} {
			w.backend.Fail(op, nil)
		}
		later(time.Minute)
		w.want(w.lease(annLease), sandbox.LeaseDestroyed, sandbox.EndedByCondition)
		if used := w.used(); used < 24 || used > 26 {
			t.Errorf("%.1f s are billed for a sandbox that was used for 25 s", used)
		}
	})
}
