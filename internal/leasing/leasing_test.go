package leasing_test

import (
	"testing"
	"time"

	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

func TestLeaseEndsWhenItsTTLHasPassed(t *testing.T) {
	inWorld(t, func(w *world) {
		w.resync = time.Hour
		w.startSlowLoop()
		w.environment()
		l := w.acquire(ann)
		w.want(l, sandbox.LeaseActive, "")
		later(24*time.Hour - time.Minute)
		w.want(w.lease(annLease), sandbox.LeaseActive, "")
		later(61 * time.Second)
		ended := w.lease(annLease)
		w.want(ended, sandbox.LeaseDestroyed, sandbox.EndedByTTL)
		if got := ended.EndedAt.Sub(l.LastActivity); got != 24*time.Hour {
			t.Errorf("ended %s after the last activity, want 24h", got)
		}
		if late := ended.DestroyedAt.Sub(ended.EndedAt); late > time.Second {
			t.Errorf("destroyed %s after the deadline", late)
		}
		if n := len(w.backend.Sandboxes()); n != 0 {
			t.Errorf("%d sandboxes are left", n)
		}
		if _, err := w.engine.Renew(w.Context(),
			sandbox.Renew{LeaseRef: sandbox.LeaseRef{ID: annLease}}); sandbox.CodeOf(err) != sandbox.LeaseEnded {
			t.Errorf("renewing an ended lease: %v", err)
		}
	})
}

func TestRenewalExtendsALeaseButNotForEver(t *testing.T) {
	inWorld(t, func(w *world) {
		w.resync = time.Hour
		w.startSlowLoop()
		w.environment()
		l := w.acquire(ann)
		for range 11 {
			later(20 * time.Hour)
			if _, err := w.engine.Renew(w.Context(), sandbox.Renew{LeaseRef: sandbox.LeaseRef{ID: annLease}}); err != nil {
				t.Fatal(err)
			}
		}
		later(20*time.Hour - time.Second)
		w.want(w.lease(annLease), sandbox.LeaseActive, "")
		later(2 * time.Second)
		ended := w.lease(annLease)
		w.want(ended, sandbox.LeaseDestroyed, sandbox.EndedByMaxLifetime)
		if got := ended.EndedAt.Sub(l.LeasedAt); got != 240*time.Hour {
			t.Errorf("lived %s, want 240h", got)
		}
	})
}

func TestIdleSandboxSleepsAndItsNextUseWakesIt(t *testing.T) {
	inWorld(t, func(w *world) {
		w.startLoop()
		w.environment()
		w.acquire(ann)
		later(5*time.Minute + time.Second) // never used: idle since it began
		if p := w.lease(annLease).Phase; p != sandbox.PhaseAsleep {
			t.Fatalf("phase after 5 idle minutes is %s", p)
		}
		w.exec(annLease, "echo", "hello")
		if p := w.lease(annLease).Phase; p != sandbox.PhaseAwake {
			t.Fatalf("phase after a command is %s", p)
		}
		later(4 * time.Minute)
		if p := w.lease(annLease).Phase; p != sandbox.PhaseAwake {
			t.Fatalf("phase 4 minutes after a command is %s", p)
		}
		later(61 * time.Second)
		if p := w.lease(annLease).Phase; p != sandbox.PhaseAsleep {
			t.Fatalf("phase 5 minutes after a command is %s", p)
		}
	})
}

func TestRunningCommandIsActivityUntilItEnds(t *testing.T) {
	inWorld(t, func(w *world) {
		w.startSlowLoop()
		w.environment(func(p *sandbox.PutEnvironment) { p.TTL = sandbox.Duration(10 * time.Minute) })
		l := w.acquire(ann)
		if r := w.exec(annLease, "sleep", "30m"); r.ExitCode != 0 {
			t.Fatalf("exit code %d", r.ExitCode)
		}
		now := w.lease(annLease)
		w.want(now, sandbox.LeaseActive, "")
		if got := now.LastActivity.Sub(l.LeasedAt); got < 30*time.Minute {
			t.Errorf("last activity is %s after the lease began, want 30m", got)
		}
		if now.Phase != sandbox.PhaseAwake {
			t.Errorf("it went to %s under a running command", now.Phase)
		}
	})
}

func TestFailingCommandDoesNotExtendALease(t *testing.T) {
	inWorld(t, func(w *world) {
		w.startSlowLoop()
		w.environment(func(p *sandbox.PutEnvironment) { p.TTL = sandbox.Duration(time.Hour) })
		w.acquire(ann)
		for range 5 {
			later(10 * time.Minute)
			w.exec(annLease, "exit", "1")
		}
		later(11 * time.Minute)
		w.want(w.lease(annLease), sandbox.LeaseDestroyed, sandbox.EndedByTTL)
	})
}

// TestALeaseOutlivesALongCommandThatFails: the lease lived because of the command, until the command ended.
func TestALeaseOutlivesALongCommandThatFails(t *testing.T) {
	inWorld(t, func(w *world) {
		w.startLoop()
		w.environment(func(p *sandbox.PutEnvironment) { p.TTL = sandbox.Duration(10 * time.Minute) })
		w.acquire(ann)
		began := w.now()
		res, err := w.engine.Exec(w.Context(), sandbox.LeaseRef{ID: annLease}, sandbox.ExecRequest{
			Command: []string{"sleep", "2h"}, Timeout: sandbox.Duration(30 * time.Minute)})
		if err != nil || !res.TimedOut {
			t.Fatalf("the command ended with %+v: %v", res, err)
		}
		w.want(w.lease(annLease), sandbox.LeaseActive, "")
		later(9 * time.Minute)
		w.exec(annLease, "exit", "1") // a short command that fails extends nothing
		later(2 * time.Minute)
		l := w.lease(annLease)
		w.want(l, sandbox.LeaseDestroyed, sandbox.EndedByTTL)
		if lived := l.EndedAt.Sub(began).Round(time.Second); lived != 40*time.Minute {
			t.Errorf("the lease ended after %s, want 40m: its ttl after the command's end", lived)
		}
	})
}

func TestLeaseReadsAsEndedWithoutALoop(t *testing.T) {
	inWorld(t, func(w *world) {
		w.environment()
		w.acquire(ann)
		later(25 * time.Hour)
		w.want(w.lease(annLease), sandbox.LeaseExpired, sandbox.EndedByTTL)
		next := w.acquire(ann)
		if next.Generation != 2 {
			t.Errorf("generation %d, want 2", next.Generation)
		}
		w.startLoop()
		later(time.Second)
		if n := len(w.backend.Sandboxes()); n != 1 {
			t.Errorf("%d sandboxes, want the second generation's only", n)
		}
	})
}

func TestConditionEndsOneAgentOrAll(t *testing.T) {
	inWorld(t, func(w *world) {
		w.startLoop()
		w.environment(func(p *sandbox.PutEnvironment) { p.Type = sandbox.TypeRPG })
		w.acquire(ann)
		w.acquire(bob)
		later(time.Second)
		if r := w.condition("agent.death", ann); r.Status != sandbox.DeliveryApplied || r.Matched != 1 {
			t.Fatalf("%+v", r)
		}
		later(time.Second)
		w.want(w.lease(annLease), sandbox.LeaseDestroyed, sandbox.EndedByCondition)
		w.want(w.lease(sandbox.LeaseID(bob, game)), sandbox.LeaseActive, "")

		again := w.acquire(ann)
		if again.Generation != 2 {
			t.Errorf("generation %d, want 2: death of one does not close the game", again.Generation)
		}
		later(time.Second)
		if r := w.condition("game.finished", ""); r.Matched != 2 {
			t.Fatalf("%+v", r)
		}
		_, err := w.engine.Acquire(w.Context(), sandbox.Acquire{AgentDID: ann, EnvironmentID: game, Owner: "test"})
		if sandbox.CodeOf(err) != sandbox.EnvironmentEnded {
			t.Fatalf("acquire after the end: %v", err)
		}
		later(time.Second)
		if n := len(w.backend.Sandboxes()); n != 0 {
			t.Errorf("%d sandboxes are left", n)
		}
		if _, err := w.engine.ReopenEnvironment(w.Context(), game); err != nil {
			t.Fatal(err)
		}
		if l := w.acquire(ann); l.Generation != 3 {
			t.Errorf("generation %d, want 3", l.Generation)
		}
	})
}

func TestALateConditionDoesNotEndTheNextGeneration(t *testing.T) {
	inWorld(t, func(w *world) {
		w.startLoop()
		w.environment(func(p *sandbox.PutEnvironment) { p.Type = sandbox.TypeRPG })
		died := time.Now()
		later(time.Second)
		w.acquire(ann)
		deliver := func(id, kind, agent string, generation int64) sandbox.Receipt {
			t.Helper()
			r, err := w.engine.Deliver(w.Context(), sandbox.Delivery{
				ID:   id,
				Body: []byte(id),
				Condition: sandbox.Condition{Type: kind,
					Timestamp: died, Data: sandbox.ConditionData{EnvironmentID: game, AgentDID: agent, Generation: generation}},
			})
			if err != nil {
				t.Fatal(err)
			}
			return r
		}
		if r := deliver("a", "agent.death", ann, 0); r.Status != sandbox.DeliveryStale || r.Matched != 0 {
			t.Errorf("older than the lease: %+v", r)
		}
		if r := deliver("b", "game.finished", "", 0); r.Status != sandbox.DeliveryStale {
			t.Errorf("older than every lease: %+v", r)
		}
		if r := deliver("c", "agent.death", ann, 2); r.Status != sandbox.DeliveryStale {
			t.Errorf("for another generation: %+v", r)
		}
		later(time.Second)
		w.want(w.lease(annLease), sandbox.LeaseActive, "")
		w.acquire(bob) // the environment is still open
		if r := deliver("d", "agent.death", ann, 1); r.Status != sandbox.DeliveryApplied {
			t.Errorf("naming the generation: %+v", r)
		}
	})
}

func TestUsageAndCostSurviveSleepAndTheNextGeneration(t *testing.T) {
	inWorld(t, func(w *world) {
		w.startSlowLoop()
		w.environment(func(p *sandbox.PutEnvironment) {
			p.Resources, _ = sandbox.ResourcesOf("basic")
		})
		first := w.acquire(ann)
		w.backend.Burn(first.SandboxID, 90*time.Second)
		w.exec(annLease, "sleep", "1h")
		later(time.Hour) // asleep after 5 minutes
		if _, err := w.engine.Release(w.Context(), sandbox.LeaseRef{ID: annLease}); err != nil {
			t.Fatal(err)
		}
		second := w.acquire(ann)
		w.exec(annLease, "sleep", "1h")
		report, err := w.engine.Costs(w.Context(), sandbox.CostQuery{})
		if err != nil {
			t.Fatal(err)
		}
		if len(report.Rows) != 1 {
			t.Fatalf("%d rows, want 1", len(report.Rows))
		}
		row := report.Rows[0]
		near := func(what string, got, want float64) {
			t.Helper()
			if got < want-1 || got > want+1 {
				t.Errorf("%s is %.3f, want %.0f", what, got, want)
			}
		}
		near("awake", row.AwakeSeconds, 2*3600+300)
		near("asleep", row.AsleepSeconds, 3600-300)
		near("CPU", row.CPUSeconds, 90)
		if row.Generations != 2 || second.Generation != 2 {
			t.Errorf("%d generations", row.Generations)
		}
		// 2 h 5 min of 1 GiB and 4 GB, and 90 s of CPU, at Cloudflare's list price.
		want := 7500*2.5e-6 + 7500*4*7e-8 + 90*2e-5
		if got := float64(row.Gross) / 1e9; got < want*0.999 || got > want*1.001 {
			t.Errorf("cost %.6f, want %.6f", got, want)
		}
		days, err := w.engine.Costs(w.Context(), sandbox.CostQuery{GroupBy: sandbox.CostByDay})
		if err != nil {
			t.Fatal(err)
		}
		if days.Total.Gross != report.Total.Gross {
			t.Errorf("by day it is %s in all, by lease %s", days.Total.Gross, report.Total.Gross)
		}
	})
}
