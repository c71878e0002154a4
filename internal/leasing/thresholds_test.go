package leasing_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/driver"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/executor/fake"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/leasing"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/ledger"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/pricing"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// TestSeveralReconcilersReportAThresholdOnce makes engines with separate stores find a spent budget at the same time, by
// checks and by refused acquires.
func TestSeveralReconcilersReportAThresholdOnce(t *testing.T) {
	t.Parallel()
	for name, fresh := range databases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var passed atomic.Int64
			now := func() time.Time {
				return time.Date(2026, 8, 15, 12, 0, 0, 0, time.UTC).Add(time.Duration(passed.Load()))
			}
			url, backend := fresh(t), fake.New("engine", now)
			var engines []*leasing.Service
			for range 2 {
				store, err := ledger.Open(t.Context(), url, ledger.Options{Now: now})
				if err != nil {
					t.Fatal(err)
				}
				engine, err := leasing.New(leasing.Config{Store: store, Executors: []driver.Executor{backend},
					PriceBooks: map[sandbox.Backend]sandbox.PriceBook{sandbox.Docker: pricing.Cloudflare()}})
				if err != nil {
					t.Fatal(err)
				}
				t.Cleanup(func() {
					if err := errors.Join(engine.Close(), store.Close()); err != nil {
						t.Error(err)
					}
				})
				engines = append(engines, engine)
			}
			put(t, engines[0], func(p *sandbox.PutEnvironment) {
				p.TTL, p.Budget = sandbox.Duration(time.Hour), &sandbox.Budget{Monthly: sandbox.USD}
			})
			acquire := func(e *leasing.Service, agent string) error {
				_, err := e.Acquire(t.Context(), sandbox.Acquire{AgentDID: agent, EnvironmentID: game, Owner: "test"})
				return err
			}
			if err := acquire(engines[0], ann); err != nil {
				t.Fatal(err)
			}
			passed.Store(int64(240 * time.Hour)) // which cost more than the budget

			done := make(chan error)
			for _, e := range engines {
				for i := range 4 {
					go func() { done <- e.CheckBudgets(t.Context()) }()
					go func() {
						err := acquire(e, fmt.Sprint("did:plc:x", i))
						if sandbox.CodeOf(err) != sandbox.BudgetExceeded {
							done <- fmt.Errorf("an acquire that the budget does not cover: %w", err)
							return
						}
						done <- nil
					}()
				}
			}
			for range 4 * 2 * len(engines) {
				if err := <-done; err != nil {
					t.Error(err)
				}
			}
			ended, err := engines[1].ListEvents(t.Context(),
				sandbox.EventFilter{EnvironmentID: game, Type: string(sandbox.EventEnded)})
			if err != nil || len(ended) != 1 || !strings.Contains(string(ended[0].Data), `"budget"`) {
				t.Errorf("the lease ended by %+v, %v", ended, err)
			}
			if told := toldOf(t, engines[1]); len(told) != 2 || told[0].Percent != 80 || told[1].Percent != 100 ||
				told[1].Spent < sandbox.USD || told[1].Month != "2026-08" {
				t.Errorf("the events have %+v, want 80 and 100 %%", told)
			}
		})
	}
}

// TestUseReportsThresholdsInEveryMonth makes a lease spend the budget of a month, and another lease that of the next.
func TestUseReportsThresholdsInEveryMonth(t *testing.T) {
	inWorld(t, func(w *world) {
		w.close() // nothing works meanwhile
		later(time.Until(time.Date(2000, 1, 31, 20, 0, 0, 0, time.UTC)))
		w.open()
		w.resync = 10 * time.Minute
		w.startLoop()
		settings := func(budget *sandbox.Budget) func(p *sandbox.PutEnvironment) {
			return func(p *sandbox.PutEnvironment) {
				never := sandbox.Duration(0)
				p.SleepAfter, p.TTL, p.Budget = &never, sandbox.Duration(96*time.Hour), budget
				p.Resources, _ = sandbox.ResourcesOf("basic") // $0.010008 an hour
			}
		}
		w.environment(settings(nil))
		w.acquire(ann)
		began := time.Now()
		w.environment(settings(&sandbox.Budget{Monthly: 20_016_000})) // two hours
		var want []sandbox.BudgetReached
		until := func(after time.Duration, month string, percent int64) {
			t.Helper()
			later(time.Until(began.Add(after - time.Minute)))
			if got := toldOf(t, w.engine); len(got) != len(want) {
				t.Fatalf("a minute before %s the events have %+v", after, got)
			}
			later(12 * time.Minute) // a minute, and the pace of the loop
			want = append(want, sandbox.BudgetReached{Month: month, Percent: percent})
			got := toldOf(t, w.engine)
			if len(got) != len(want) || got[len(got)-1].Month != month || got[len(got)-1].Percent != percent {
				t.Fatalf("after %s the events have %+v, want %+v at last", after, got, want[len(want)-1])
			}
		}
		until(96*time.Minute, "2000-01", 80)
		until(2*time.Hour, "2000-01", 100)
		later(time.Until(began.Add(4 * time.Hour)))
		w.acquire(ann)
		until(4*time.Hour+96*time.Minute, "2000-02", 80)
		until(6*time.Hour, "2000-02", 100)
		later(4 * time.Hour)
		if got := toldOf(t, w.engine); len(got) != 4 {
			t.Errorf("hours later the events have %+v", got)
		}
	})
}

// TestWhatTheLastMomentsOfAMonthCostIsReported reaches a threshold two minutes before a month ends, between two checks of
// the budgets.
func TestWhatTheLastMomentsOfAMonthCostIsReported(t *testing.T) {
	inWorld(t, func(w *world) {
		w.close()
		later(time.Until(time.Date(2000, 1, 31, 20, 5, 0, 0, time.UTC)))
		w.open()
		w.resync = 10 * time.Minute
		w.startLoop()
		settings := func(p *sandbox.PutEnvironment) {
			never := sandbox.Duration(0)
			p.SleepAfter, p.TTL = &never, sandbox.Duration(96*time.Hour)
			p.Resources, _ = sandbox.ResourcesOf("basic") // $0.010008 an hour
		}
		w.environment(settings)
		w.acquire(ann)
		w.environment(settings, func(p *sandbox.PutEnvironment) {
			p.Budget = &sandbox.Budget{Monthly: 10_008_000 * 233 / 48} // 80 % of it is 3 h 53 min
		})
		later(time.Until(time.Date(2000, 1, 31, 23, 57, 0, 0, time.UTC)))
		if got := toldOf(t, w.engine); len(got) > 0 {
			t.Fatalf("before the threshold the events have %+v", got)
		}
		later(2 * time.Hour)
		if got := toldOf(t, w.engine); len(got) != 1 || got[0].Month != "2000-01" || got[0].Percent != 80 {
			t.Errorf("the events have %+v, want 80 %% of January", got)
		}
	})
}

// put creates an environment.
func put(t *testing.T, e *leasing.Service, change func(p *sandbox.PutEnvironment)) {
	t.Helper()
	p := sandbox.PutEnvironment{ID: game, Owner: "test", EnvironmentSpec: sandbox.EnvironmentSpec{
		Type: sandbox.TypeCatan, Image: "player", Network: sandbox.NetworkNone}}
	change(&p)
	if _, err := e.PutEnvironment(t.Context(), p); err != nil {
		t.Fatal(err)
	}
}

// toldOf returns the budget thresholds that have events.
func toldOf(t *testing.T, e *leasing.Service) (told []sandbox.BudgetReached) {
	t.Helper()
	events, err := e.ListEvents(context.Background(), sandbox.EventFilter{EnvironmentID: game})
	if err != nil {
		t.Fatal(err)
	}
	for _, event := range events {
		if event.Type != sandbox.EventBudgetReached {
			continue
		}
		var b sandbox.BudgetReached
		if err := json.Unmarshal(event.Data, &b); err != nil {
			t.Fatal(err)
		}
		told = append(told, b)
	}
	return told
}
