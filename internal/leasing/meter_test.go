package leasing_test

import (
	"bytes"
	"log/slog"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/driver"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/executor/fake"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/leasing"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// metering is a game whose only lease is awake from a midnight on, on a backend with a meter.
type metering struct {
	*world
	lease  sandbox.Lease
	began  time.Time
	logged bytes.Buffer
}

func inMeteredWorld(t *testing.T, f func(m *metering)) {
	inWorld(t, func(w *world) {
		m := &metering{world: w, began: time.Now().UTC().Truncate(24 * time.Hour)}
		if err := w.engine.Close(); err != nil {
			w.Fatal(err)
		}
		engine, err := leasing.New(leasing.Config{Store: w.store, Executors: []driver.Executor{w.backend}, Version: "test",
			Logger: slog.New(slog.NewTextHandler(&m.logged, nil))})
		if err != nil {
			w.Fatal(err)
		}
		w.engine = engine
		awake := sandbox.Duration(0)
		w.environment(func(p *sandbox.PutEnvironment) {
			p.TTL, p.MaxLifetime, p.SleepAfter = sandbox.Duration(1000*time.Hour), sandbox.Duration(2000*time.Hour), &awake
		})
		m.lease = w.acquire(ann)
		f(m)
	})
}

// day returns the backend's figures of the nth day: a share of the lease's usage.
func (m *metering) day(n int, share float64) driver.Metered {
	return driver.Metered{
		Day:             m.began.AddDate(0, 0, n),
		MemoryMBSeconds: share * 86400 * float64(m.lease.Resources.MemoryMB),
		DiskMBSeconds:   share * 86400 * float64(m.lease.Resources.DiskMB),
	}
}

func (m *metering) reconcile() {
	m.Helper()
	if err := m.engine.ReconcileUsage(m.Context(), sandbox.Docker); err != nil {
		m.Fatal(err)
	}
}

func (m *metering) findings(status sandbox.DriftStatus) []sandbox.DriftFinding {
	m.Helper()
	found, err := m.engine.ListDrift(m.Context(), sandbox.DriftFilter{Kind: sandbox.DriftUsage, Status: status})
	if err != nil {
		m.Fatal(err)
	}
	return found
}

func (m *metering) wantOpen(n int, when string) []sandbox.DriftFinding {
	m.Helper()
	found := m.findings(sandbox.DriftOpen)
	if len(found) != n {
		m.Fatalf("%s, and the findings are %+v, want %d", when, found, n)
	}
	return found
}

func (m *metering) costs() sandbox.CostReport {
	m.Helper()
	report, err := m.engine.Costs(m.Context(), sandbox.CostQuery{GroupBy: sandbox.CostByDay, To: time.Now()})
	if err != nil {
		m.Fatal(err)
	}
	return report
}

func TestUsageThatABackendHasCountedOtherwiseIsAFindingAndNoCost(t *testing.T) {
	inMeteredWorld(t, func(m *metering) {
		time.Sleep(3*24*time.Hour + 7*time.Hour)
		m.reconcile()
		m.wantOpen(0, "the backend has no meter")

		m.backend.Meter(m.day(0, 9), m.day(1, 1.05), m.day(2, 0.95))
		m.reconcile()
		m.wantOpen(0, "what differs is tolerated, and the day on which it was made is left out")

		before := m.costs()
		m.backend.Meter(m.day(1, 1), m.day(2, 1.5))
		m.reconcile()
		m.reconcile()
		found := m.wantOpen(2, "a day has half as much again")
		for _, f := range found {
			about := "usage of environment " + game + " on " + m.began.AddDate(0, 0, 2).Format(time.DateOnly) + ": "
			if f.EnvironmentID != game || !strings.HasPrefix(f.Field, about) || f.Expected == f.Observed ||
				!strings.Contains(f.Expected, " hours") {
				m.Errorf("the finding is %+v", f)
			}
		}
		if after := m.costs(); !reflect.DeepEqual(before.Rows, after.Rows) || before.Total != after.Total {
			m.Errorf("costs were %+v and are %+v", before, after)
		}

		m.backend.Meter(m.day(2, 1))
		m.reconcile()
		if open := m.wantOpen(2, "a day of which nothing was counted is no usage, and what "+
			"is late has come"); !strings.Contains(open[0].Field, m.began.AddDate(0, 0, 1).Format(time.DateOnly)) {
			m.Errorf("the findings are %+v", open)
		}
		m.backend.Meter(m.day(1, 1), m.day(2, 1))
		m.reconcile()
		m.wantOpen(0, "all agrees")
	})
}

func TestUsageIsNotComparedWithABackendThatDoesNotAnswer(t *testing.T) {
	inMeteredWorld(t, func(m *metering) {
		time.Sleep(2*24*time.Hour + 7*time.Hour)
		m.backend.Meter(m.day(1, 2))
		m.reconcile()
		m.wantOpen(2, "the backend has counted twice as much")

		m.backend.Fail(fake.OpMeter, sandbox.Errorf(sandbox.Forbidden, "the token lacks a permission"))
		m.reconcile()
		m.reconcile()
		m.wantOpen(2, "it may not be asked")
		if said := strings.Count(m.logged.String(), "the token lacks a permission"); said != 1 {
			m.Errorf("the refused meter was logged %d times", said)
		}
		m.backend.Fail(fake.OpMeter, sandbox.Errorf(sandbox.Unavailable, "it is down"))
		if err := m.engine.ReconcileUsage(m.Context(), sandbox.Docker); sandbox.CodeOf(err) != sandbox.Unavailable {
			m.Errorf("it is down, and the error is %v", err)
		}
		m.wantOpen(2, "it is down")

		time.Sleep(8 * 24 * time.Hour)
		if err := m.engine.ReconcileUsage(m.Context(), sandbox.Docker); sandbox.CodeOf(err) != sandbox.Unavailable {
			m.Errorf("it is still down, and the error is %v", err)
		}
		m.wantOpen(2, "it has been down for a week")
		m.backend.Fail(fake.OpMeter, nil)
		var all []driver.Metered
		for n := range 12 {
			all = append(all, m.day(n, 1))
		}
		m.backend.Meter(all...)
		m.reconcile()
		m.wantOpen(0, "its day is long past")
		if closed := m.findings(sandbox.DriftResolved); len(closed) != 2 ||
			!strings.Contains(closed[0].Resolution, "more than a week ago") {
			m.Errorf("the findings were closed as %+v", closed)
		}
	})
}

const neighbour = "catan-8"

// withNeighbour adds a similar environment, with a lease of the same usage.
func (m *metering) withNeighbour() {
	m.Helper()
	awake := sandbox.Duration(0)
	m.environment(func(p *sandbox.PutEnvironment) {
		p.ID = neighbour
		p.TTL, p.MaxLifetime, p.SleepAfter = sandbox.Duration(1000*time.Hour), sandbox.Duration(2000*time.Hour), &awake
	})
	_, err := m.engine.Acquire(m.Context(), sandbox.Acquire{AgentDID: bob, EnvironmentID: neighbour, Owner: "test"})
	if err != nil {
		m.Fatal(err)
	}
}

// together makes the backend count environments together from a time on the nth day on.
func (m *metering) together(n int, environments []string, days ...driver.Metered) {
	refs := make([]driver.EnvironmentRef, len(environments))
	for i, id := range environments {
		refs[i] = driver.EnvironmentRef{LedgerID: m.store.ID(), EnvironmentID: id, Instance: m.lease.Instance}
	}
	m.backend.MeterTogether(refs, m.began.AddDate(0, 0, n).Add(time.Hour), days...)
}

func TestUsageThatABackendCountsTogetherIsComparedTogether(t *testing.T) {
	inMeteredWorld(t, func(m *metering) {
		m.withNeighbour()
		both := []string{game, neighbour}
		time.Sleep(3*24*time.Hour + 7*time.Hour)
		m.together(0, both, m.day(0, 9), m.day(1, 2), m.day(2, 2))
		m.reconcile()
		m.wantOpen(0, "both environments together agree, and the day on which the counting began is left out")

		more := m.day(2, 2)
		more.MemoryMBSeconds *= 1.5
		m.together(0, both, m.day(1, 2), more)
		m.reconcile()
		m.reconcile()
		f := m.wantOpen(1, "a day has half as much memory again")[0]
		field := "usage of the environments that share an application on " + more.Day.Format(time.DateOnly) + ": memory"
		if f.EnvironmentID != "" || f.Instance != m.lease.Instance || f.Field != field || f.Expected == f.Observed {
			t.Errorf("the finding is %+v", f)
		}
		m.together(0, both, m.day(1, 2), m.day(2, 2))
		m.reconcile()
		m.wantOpen(0, "the late figures agree")
		if resolved := m.findings(sandbox.DriftResolved); len(resolved) != 1 ||
			!strings.Contains(resolved[0].Resolution, "now agree") {
			t.Errorf("the findings were resolved as %+v", resolved)
		}
		m.together(1, both, m.day(0, 9), m.day(1, 9), m.day(2, 2))
		m.reconcile()
		m.wantOpen(0, "only the days after the counting began are compared")
	})
}

func TestUsageThatABackendCountsTogetherIncludesRemovedEnvironments(t *testing.T) {
	inMeteredWorld(t, func(m *metering) {
		m.withNeighbour()
		time.Sleep(2 * 24 * time.Hour)
		err := m.engine.DeleteEnvironment(m.Context(), sandbox.DeleteEnvironment{ID: neighbour, Force: true})
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(24*time.Hour + 7*time.Hour)
		m.together(0, []string{game, neighbour}, m.day(1, 2), m.day(2, 1))
		m.reconcile()
		m.wantOpen(0, "the usage of the removed environment counts until its end")
		m.together(0, []string{game}, m.day(1, 2), m.day(2, 1))
		m.reconcile()
		m.wantOpen(2, "without the removed environment, the first day differs")
	})
}

func TestUsageCountedTogetherAndAloneIsComparedApart(t *testing.T) {
	inMeteredWorld(t, func(m *metering) {
		m.withNeighbour()
		time.Sleep(2*24*time.Hour + 7*time.Hour)
		m.together(0, []string{game}, m.day(1, 1))
		err := m.engine.ReconcileUsage(m.Context(), sandbox.Docker)
		if sandbox.CodeOf(err) != sandbox.NotFound || !strings.Contains(err.Error(), "environment "+neighbour) {
			t.Errorf("the backend has nothing of an environment, and the error is %v", err)
		}
		m.backend.Meter(m.day(1, 2))
		m.reconcile()
		for _, f := range m.wantOpen(2, "the backend counted twice as much of the environment that is alone") {
			if f.EnvironmentID != neighbour {
				t.Errorf("the finding is %+v", f)
			}
		}
	})
}

func TestAFindingOfUsageIsResolvedAfterAWeekAlthoughItsEnvironmentIsGone(t *testing.T) {
	inMeteredWorld(t, func(m *metering) {
		time.Sleep(2*24*time.Hour + 7*time.Hour)
		m.backend.Meter(m.day(1, 2))
		m.reconcile()
		m.wantOpen(2, "the backend counted twice as much")
		if err := m.engine.DeleteEnvironment(m.Context(), sandbox.DeleteEnvironment{ID: game, Force: true}); err != nil {
			t.Fatal(err)
		}
		time.Sleep(5 * 24 * time.Hour)
		m.reconcile()
		m.wantOpen(2, "the environment is gone, and the day is within the week")
		time.Sleep(3 * 24 * time.Hour)
		m.reconcile()
		m.wantOpen(0, "the day is more than a week ago")
	})
}

func TestTheMeterAgreesOnTheCPUOfEachDay(t *testing.T) {
	inMeteredWorld(t, func(m *metering) {
		time.Sleep(3 * 24 * time.Hour) // idle
		for range 24 {                 // then it uses half of its half core for a day
			time.Sleep(time.Hour)
			m.backend.Burn(m.lease.SandboxID, 15*time.Minute)
			m.resyncNow()
		}
		time.Sleep(8 * time.Hour)
		busy := m.day(3, 1)
		busy.CPU = 6 * time.Hour
		m.backend.Meter(m.day(0, 1), m.day(1, 1), m.day(2, 1), busy)
		m.reconcile()
		for _, f := range m.findings(sandbox.DriftOpen) {
			t.Errorf("%s: expected %s, observed %s", f.Field, f.Expected, f.Observed)
		}
	})
}
